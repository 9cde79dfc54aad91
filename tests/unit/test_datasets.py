"""Data sets by name: what a desired state may say of them."""

from __future__ import annotations

import pytest

from shakedown.desired.models import Dataset, Smoke
from shakedown.smoke.datasets import files_of, known, problem_of
from shakedown.smoke.options import choose
from shakedown.smoke.plan.cache import host_folder
from shakedown.smoke.recipe import recipes

SHA = "a" * 64


def test_the_documents_five_files_have_room_for_a_sites_checksums() -> None:
    files = files_of("deepseek", Dataset(folder="/d", sha256={"SlimPajama.json": SHA}))
    assert len(files) == 5
    assert [file.get("sha256") for file in files] == [SHA, None, None, None, None]


def test_prepared_data_is_asked_for_as_documented() -> None:
    assert known()["wiki"].variables["DATASET"] == "wiki"
    assert known()["bookcorpus"].command == ["bash", "examples/llama/prepare_dataset.sh"]


@pytest.mark.parametrize(
    ("name", "dataset", "said"),
    [
        ("pile", Dataset(folder="/d"), "deepseek, wiki, bookcorpus"),
        ("wiki", Dataset(folder="/d"), "datasets.wiki.image"),
        ("wiki", Dataset(folder="/d", image="absent"), "datasets.wiki.image"),
        ("deepseek", Dataset(folder="/d", sha256={"SlimPajama.jsonl": SHA}), "no such files: SlimPajama.jsonl"),
    ],
)
def test_what_cannot_be_had_is_told(name: str, dataset: Dataset, said: str) -> None:
    problem = problem_of(name, dataset, {"megatron": object()})
    assert problem is not None and said in problem


def test_what_can_be_had_is_no_problem() -> None:
    images = {"megatron": object()}
    assert problem_of("wiki", Dataset(folder="/d", image="megatron"), images) is None
    assert problem_of("deepseek", Dataset(folder="/d"), {}) is None
    own = Dataset.model_validate(
        {"folder": "/d", "files": [{"url": "https://example.org/a%20b.bin", "size_bytes": "1M"}]}
    )
    assert problem_of("own", own, {}) is None
    assert files_of("own", own) == [{"url": "https://example.org/a%20b.bin", "size": 2**20}]


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
    assert host_folder(chosen, smoke.volumes) == folder
