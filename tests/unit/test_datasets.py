"""Data sets by name: what a desired state may say of them."""

from __future__ import annotations

import pytest

from shakedown.desired.models import Dataset, Image, Smoke
from shakedown.jobs.plan.container import cache_folder
from shakedown.recipes.datasets import files_of, known, problems_of, variables_of
from shakedown.recipes.options import choose
from shakedown.recipes.program import gated, program
from shakedown.recipes.recipe import recipes

SHA = "a" * 64


def test_the_documents_five_files_have_room_for_a_sites_checksums() -> None:
    files = files_of("deepseek", Dataset(folder="/d", sha256={"SlimPajama.json": SHA}))
    assert len(files) == 5
    assert [file.get("sha256") for file in files] == [SHA, None, None, None, None]


IMAGES = {"megatron": Image(reference="rocm/megatron-lm:v25.5_py310"), "old": Image(reference="rocm/megatron-lm:v25.4")}
OWN = Dataset.model_validate({"folder": "/d", "files": [{"url": "https://example.org/a%20b.bin", "size_bytes": "1M"}]})


def said_of(name: str, dataset: Dataset) -> list[str]:
    return [str(problem) for problem in problems_of(name, dataset, IMAGES)]


def test_prepared_data_is_asked_for_as_documented() -> None:
    assert known()["wiki"].variables["DATASET"] == "wiki"
    assert known()["bookcorpus"].command[-1].endswith("bash examples/llama/prepare_dataset.sh")


@pytest.mark.parametrize("name", ["wiki", "bookcorpus"])
def test_the_scripts_that_were_read_have_what_they_need(name: str) -> None:
    variables = variables_of(name, Dataset(folder="/d", image="megatron"))
    for version in ("rocm_fd6f0d1", "rocm_8aa8865"):
        script = "examples/llama/prepare_dataset.sh"
        assert program(version).variables[script].keys() <= {*variables, "TOKENIZER_TYPE"}
    assert not gated(variables["TOKENIZER_MODEL"])
    own = variables_of(name, Dataset(folder="/d", image="megatron", tokenizer="/t"))
    assert own == {**variables, "TOKENIZER_MODEL": "/t"}


@pytest.mark.parametrize(
    ("name", "dataset", "said"),
    [
        ("pile", Dataset(folder="/d"), "one of the names deepseek, wiki, bookcorpus"),
        ("bookcorpsu", Dataset(folder="/d"), "expected bookcorpus? files"),
        ("wiki", Dataset(folder="/d"), "datasets.wiki.image = None: expected a name in images (megatron, old)"),
        ("wiki", Dataset(folder="/d", image="absent"), "datasets.wiki.image"),
        ("wiki", Dataset(folder="/d", image="old"), "a newer image: prepare_dataset.sh at fd6f0d1"),
        ("wiki", Dataset(folder="/d", image="megatron", tokenizer="meta-llama/Llama-2-7b"), "without a token"),
        ("deepseek", Dataset(folder="/d", tokenizer="x/y"), "it is downloaded, not prepared"),
        ("deepseek", Dataset(folder="/d", sha256={"SlimPajama.jsonl": SHA}), "expected one of its files"),
        ("wiki", OWN.model_copy(update={"image": "megatron"}), "name your own data otherwise"),
        ("own", OWN.model_copy(update={"sha256": {"b.bin": SHA}}), "datasets.own.sha256.b.bin"),
    ],
)
def test_what_cannot_be_had_is_told(name: str, dataset: Dataset, said: str) -> None:
    (problem,) = said_of(name, dataset)
    assert said in problem


def test_what_can_be_had_is_no_problem() -> None:
    assert said_of("wiki", Dataset(folder="/d", image="megatron")) == []
    assert said_of("bookcorpus", Dataset(folder="/d", image="old", tokenizer="NousResearch/Llama-2-7b-hf")) == []
    assert said_of("deepseek", Dataset(folder="/d")) == []
    assert said_of("own", OWN) == []
    assert files_of("own", OWN) == [{"url": "https://example.org/a%20b.bin", "size": 2**20}]


@pytest.mark.parametrize(
    ("recipe", "options", "folder"),
    [
        ("llama3.1-8b-fp8", {"MOCK_DATA": 0, "DATA_CACHE_PATH": "/root/cache/x"}, "/shared/cache/x"),
        ("llama3.1-8b-fp8", {"MOCK_DATA": 0, "DATA_CACHE_PATH": "/elsewhere"}, None),
        ("llama3.1-8b-fp8", {"MOCK_DATA": 1, "DATA_CACHE_PATH": "/root/cache/x"}, None),
        ("gpt-small", {}, None),
    ],
)
def test_only_a_run_with_real_data_needs_a_shared_cache(
    recipe: str, options: dict[str, int | str], folder: str | None
) -> None:
    smoke = Smoke(recipe=recipe, options=dict(options), volumes={"/shared": "/root"})
    chosen, _ = choose(recipes()[recipe], smoke)
    assert cache_folder(chosen, smoke.volumes) == folder
