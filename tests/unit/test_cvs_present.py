"""The present form: its names and cells, what CVS itself would do, and that no leaf of a stored version is silent."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from shakedown.desired.cvs.tables import families, family_of
from shakedown.recipes.recipe import recipes
from tests.cvs_files import DELETED, LATER, PRESENT, SWEEP, changed, copy_of, errors, outcome

FP8, BF16 = "MBS=4,GBS=128,PRECISION=FP8", "MBS=4,GBS=128,PRECISION=BF16"
RUN = Choice(run=FP8)
THRESHOLDS = "present_threshold.json"
VERSIONS = tomllib.loads((PRESENT.parent / "versions.toml").read_text("utf-8"))["versions"]


def remarks(path: Path, choice: Choice = RUN) -> dict[str, str]:
    """Every remark by the place in the file, with its kind."""
    result: dict[str, str] = {}
    for remark in import_file(path, choice).remarks:
        result[remark.path] = f"{result.get(remark.path, '')}{remark.kind}: {remark.why}\n"
    return result


def test_a_run_has_the_sizes_of_its_name_and_the_iterations_of_its_body() -> None:
    smoke = import_file(PRESENT, RUN).values["smoke"]
    assert (smoke["recipe"], smoke["iterations"], smoke["scope"]) == ("llama3.1-8b-fp8", 20, "together")
    assert {"MBS": 4, "BS": 128, "TE_FP8": True, "SEQ_LENGTH": 8192}.items() <= smoke["options"].items()
    assert import_file(PRESENT, Choice(run=BF16)).values["smoke"]["options"]["TE_FP8"] is False


def test_the_form_is_told_by_content_and_its_name_is_no_matter(tmp_path: Path) -> None:
    other = copy_of(tmp_path, PRESENT, {}).rename(tmp_path / "mi35x_megatron_llama_single.json")
    assert import_file(other, RUN).values == import_file(PRESENT, RUN).values


def test_two_names_of_one_thing_and_a_truncated_file_are_errors(tmp_path: Path) -> None:
    both = copy_of(tmp_path, PRESENT, {"config.log_dir": "/logs"})
    assert "paths.log_dir has the same meaning" in errors(both, RUN)["config.log_dir"]
    assert "train_params" in errors(copy_of(tmp_path, PRESENT, {"train_params": DELETED}), RUN)


def test_all_errors_come_at_once_and_open_values_with_them(tmp_path: Path) -> None:
    wrong = {
        "gpu_name": "<changeme>",
        "threshold_json": "<changeme>",
        "train_params.model_size": "eight",
        "container.runtime.args.network": "bridge",
        "typo": 1,
    }
    found = errors(copy_of(tmp_path, PRESENT, wrong), Choice())
    assert set(found) >= {*wrong, "run", "container.image", "container.env.NCCL_DEBUG"}
    assert "--gpu" in found["gpu_name"] and "--thresholds" in found["threshold_json"]


def test_a_gpu_and_a_threshold_file_left_open_can_be_chosen(tmp_path: Path) -> None:
    file = copy_of(tmp_path, PRESENT, {"gpu_name": "<changeme>", "threshold_json": "<changeme>"})
    choice = Choice(gpu="mi325x", run=FP8, thresholds=str(tmp_path / THRESHOLDS))
    assert import_file(file, choice).values["gpu"] == "mi325x"
    assert "CVS itself stops" in remarks(file, choice)["gpu_name"]


def test_placeholders_are_refused_by_name_but_for_those_of_the_checkpoint(tmp_path: Path) -> None:
    found = import_file(PRESENT, RUN)
    assert {problem.path for problem in found.open} == {"container.image", "container.env.NCCL_DEBUG"}
    told = remarks(PRESENT)
    assert "exempts" in told["container.runtime.args.volumes"] and "checkpoint.checkpoint_dir" in told
    assert "has '20'" in told["train_params.training_iterations"]
    site = copy_of(tmp_path, PRESENT, {"container.env.MY_SWITCH": "1 <changeme>"})
    assert "container.env.MY_SWITCH" in {problem.path for problem in import_file(site, RUN).open}
    enforced = copy_of(tmp_path, PRESENT, {"checkpoint.enforce": True})
    assert "container.runtime.args.volumes" in {problem.path for problem in import_file(enforced, RUN).open}


def test_without_a_sweep_there_is_one_cell_with_cvs_own_values(tmp_path: Path) -> None:
    cells = json.loads(PRESENT.with_name(THRESHOLDS).read_text("utf-8"))
    alone = {FP8: DELETED, BF16: DELETED, "default": changed(cells[FP8], {("training.tokens_per_gpu", "value"): 7000})}
    file = copy_of(tmp_path, PRESENT, {"sweep": DELETED, "train_params.training_iterations": "30"}, alone)
    smoke = import_file(file, Choice()).values["smoke"]
    assert (smoke["options"]["MBS"], smoke["options"]["BS"], smoke["options"]["TE_FP8"]) == (2, 128, False)
    assert (smoke["iterations"], smoke["expect"]["tokens_per_gpu"]) == (30, 7000.0)
    assert "CVS's own value" in remarks(file, Choice())["train_params.micro_batch_size"]
    own = copy_of(tmp_path, PRESENT, {"sweep": DELETED, "train_params.micro_batch_size": "3"}, alone)
    assert import_file(own, Choice()).values["smoke"]["options"]["MBS"] == 3
    assert "the file has no sweep" in errors(file, RUN)["run"]


def test_the_cell_smoke_is_a_run_that_is_judged_by_no_figure(tmp_path: Path) -> None:
    smoke = import_file(PRESENT, Choice(run="smoke")).values["smoke"]
    assert (smoke["options"]["MBS"], smoke["options"]["BS"], smoke["iterations"]) == (1, 16, 10)
    assert "expect" not in smoke and smoke["options"]["TE_FP8"] is False
    for address, batch in (("127.0.0.1", 8), ("10.9.9.9", 16)):
        changes = {"smoke.global_batch_size": "", "container.env.MASTER_ADDR": address}
        smoke = import_file(copy_of(tmp_path, PRESENT, changes), Choice(run="smoke")).values["smoke"]
        assert smoke["options"]["BS"] == batch, "CVS's own for one node and for several"


def test_runs_and_names_of_cells_must_be_cvs(tmp_path: Path) -> None:
    assert "CVS asks for it" in errors(copy_of(tmp_path, PRESENT, {"sweep.runs": DELETED}), RUN)["sweep.runs"]
    twice = copy_of(tmp_path, PRESENT, {("sweep", "combinations", FP8, "precision"): "BF16"})
    assert "has it" in errors(twice, RUN)[f"sweep.combinations.{FP8}.precision"]
    bad = {("sweep", "combinations", "MBS=4,GBS=128"): {}, "sweep.runs": [FP8, "MBS=4,GBS=128"]}
    assert "PRECISION=.." in errors(copy_of(tmp_path, PRESENT, bad), RUN)["sweep.combinations.MBS=4,GBS=128"]


def test_packaged_figures_are_never_expected(tmp_path: Path) -> None:
    assert import_file(PRESENT, RUN).values["smoke"]["expect"] == {"mem_usage": 0.85}
    assert "no measurement" in remarks(PRESENT)[f"{FP8}: elapsed_time_per_iteration"]
    own = copy_of(tmp_path, PRESENT, {}, {(FP8, "training.elapsed_time_per_iteration", "value"): 9000})
    assert import_file(own, RUN).values["smoke"]["expect"]["elapsed_time_per_iteration"] == 9000.0


@pytest.mark.parametrize("value", [True, False])
def test_an_optional_figure_is_a_bound_with_a_remark(value: bool, tmp_path: Path) -> None:
    file = copy_of(tmp_path, PRESENT, {}, {(FP8, "training.mem_usage", "optional"): value})
    assert import_file(file, RUN).values["smoke"]["expect"]["mem_usage"] == 0.85
    assert (f"{THRESHOLDS}: {FP8}.training.mem_usage.optional" in remarks(file)) is value
    wrong = copy_of(tmp_path, PRESENT, {}, {(FP8, "training.mem_usage", "optional"): "yes"})
    assert "true or false" in errors(wrong, RUN)[f"{THRESHOLDS}: {FP8}.training.mem_usage.optional"]


def test_a_threshold_file_that_is_no_json_is_an_error_or_where_nothing_is_judged_a_remark(tmp_path: Path) -> None:
    file = copy_of(tmp_path, PRESENT, {})
    (tmp_path / THRESHOLDS).write_text('{"MBS=4,GBS=128,PRECISION=FP8": {"training.mem_usage": {"kind": "max"},},}')
    assert "JSON" in errors(file, RUN)["file"]
    file.write_text(json.dumps(changed(json.loads(file.read_text("utf-8")), {"enforce_thresholds": False})), "utf-8")
    assert "CVS itself stops at the file" in remarks(file)["threshold_json"]


def test_a_cell_of_no_run_is_told(tmp_path: Path) -> None:
    file = copy_of(tmp_path, PRESENT, {}, {"MBS=8,GBS=128,PRECISION=FP8": {}})
    assert "CVS stops" in remarks(file)[f"{THRESHOLDS}: MBS=8,GBS=128,PRECISION=FP8"]


@pytest.mark.parametrize(
    ("gpu", "devices", "family", "told"),
    [
        ("MI300X", DELETED, "thor2", "as CVS takes"),
        ("MI355X", DELETED, "ainic", "as CVS takes"),
        ("MI355X", "bnxt_re0,bnxt_re1", "thor2", "CVS itself sets up ainic"),
        ("MI300X", "ionic_0,ionic_1", "ainic", "CVS itself sets up thor2"),
        ("MI300X", "mlx5_0", "cx7", "from the devices' names"),
    ],
)
def test_the_nic_family_is_derived_and_what_cvs_takes_is_told(
    gpu: str, devices: Any, family: str, told: str, tmp_path: Path
) -> None:
    changes = {"gpu_name": gpu, "container.env.NCCL_IB_HCA": devices}
    file = copy_of(tmp_path, PRESENT, changes | {"container.runtime.args.volumes": []})
    assert import_file(file, RUN).values["nic"] == family
    assert told in "".join(remarks(file).values())


def test_one_node_or_several_is_told_by_the_masters_address(tmp_path: Path) -> None:
    alone = copy_of(tmp_path, PRESENT, {"container.env.MASTER_ADDR": "127.0.0.1"})
    values = import_file(alone, RUN).values
    assert (values["smoke"]["scope"], "nic" in values) == ("each", False)
    assert "a job of one node" in remarks(alone)["container.env.NCCL_IB_HCA"]
    typed = copy_of(tmp_path, PRESENT, {"container.env.NNODES": "4"})
    assert "CVS of September 2026 stops" in remarks(typed)["container.env.NNODES"]


@pytest.mark.parametrize("image", ["rocm/primus:v26.7", "registry:5000/team/PRIMUS-dev@sha256:00"])
def test_an_image_with_primus_in_its_name_trains_what_cvs_passes_to_primus(image: str, tmp_path: Path) -> None:
    changes = {"container.image": image, "train_params.tensor_parallelism": "8"}
    file = copy_of(tmp_path, PRESENT, changes)
    smoke = import_file(file, RUN).values["smoke"]
    assert smoke["recipe"] == "primus-llama3.1-8b-fp8" in recipes()
    assert smoke["options"] == {"global_batch_size": 128, "micro_batch_size": 4}
    told = remarks(file)
    assert "configs/MI300X/llama3.1_8B-FP8-pretrain.yaml" in told["train_params.model_name"]
    for name in ("tensor_parallelism", "pipeline_parallelism", "sequence_length", "recompute", "fsdp", "model_size"):
        assert told[f"train_params.{name}"].startswith("refused: CVS passes none to Primus")


@pytest.mark.parametrize("name", [name for name, recipe in recipes().items() if recipe.entry.experiment])
def test_the_name_of_each_of_amds_files_leads_to_its_recipe(name: str) -> None:
    """As Mixtral's, mixtral_8x7B_v0.1-FP8: CVS takes the first part for the model and the last for the precision."""
    model, _, precision = str(recipes()[name].entry.experiment).rpartition("-")
    family = family_of(model, "rocm/primus:v26.7")
    assert family is not None and family.recipe({}, "mi300x", model, precision) == name


def test_what_primus_does_not_get_may_be_of_any_type(tmp_path: Path) -> None:
    """CVS's own mixtral_8x22b_distributed_config.json at c410a5b7 has this size."""
    size = {"train_params.model_name": "mixtral_8x22B", "train_params.model_size": "8x22B"}
    file = copy_of(tmp_path, PRESENT, {**size, "container.image": "rocm/primus:v26.7"})
    assert remarks(file)["train_params.model_size"].startswith("refused: CVS passes none to Primus")
    assert "whole number" in errors(copy_of(tmp_path, PRESENT, size), RUN)["train_params.model_size"]


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "words"),
    [
        ("qwen3_30B", "MI300X", "FP8", "smoke.recipe = 'primus-qwen3-30b-fp8'"),  # as CVS's own file at ba691110
        ("llama3.2_1B", "MI355X", "BF16", "smoke.recipe = 'primus-llama3.2-1b-bf16'"),
        ("llama3.1_8B", "MI325X", "MXFP8", "gfx942 has no MX formats"),
        ("llama3.1_8B", "MI355X", "MXFP8", ""),
    ],
)
def test_the_command_refuses_what_no_recipe_trains(
    model: str, gpu: str, precision: str, words: str, tmp_path: Path
) -> None:
    run = f"MBS=4,GBS=128,PRECISION={precision}"
    changes = {"train_params.model_name": model, "gpu_name": gpu, "container.image": "rocm/primus:v26.7"}
    sweep = {("sweep", "combinations", run): {}, "sweep.runs": [run]}
    file = copy_of(tmp_path, PRESENT, {**changes, **sweep})
    result = CliRunner().invoke(main, ["import-cvs", str(file), "--run", run])
    assert (words in result.stderr, "smoke.recipe" in result.stderr, result.stdout == "") == (True, *[words != ""] * 2)


def test_what_only_primus_trains_is_primus_where_the_image_is_open(tmp_path: Path) -> None:
    file = copy_of(tmp_path, PRESENT, {"train_params.model_name": "llama3.1_405B", "train_params.model_size": "405"})
    assert import_file(file, RUN).values["smoke"]["recipe"] == "primus-llama3.1-405b-fp8"
    assert "read as Primus's" in remarks(file)["container.image"]
    named = copy_of(tmp_path, PRESENT, {"train_params.model_size": "405", "container.image": "rocm/megatron-lm:v25.5"})
    assert "one of 8, 70" in errors(named, RUN)["train_params.model_size"]


@pytest.mark.parametrize(("precision", "told"), [("MXFP4", "TE_FP4=1"), ("INT4", "CVS itself trains")])
def test_a_precision_that_is_not_trained_is_refused_with_what_cvs_does(
    precision: str, told: str, tmp_path: Path
) -> None:
    name = f"MBS=4,GBS=128,PRECISION={precision}"
    file = copy_of(tmp_path, PRESENT, {("sweep", "combinations", name): {}, "sweep.runs": [FP8, name]})
    assert told in errors(file, Choice(run=name))[f"sweep.combinations.{name}.precision"]


def test_a_gpu_that_cvs_does_not_know_is_told(tmp_path: Path) -> None:
    assert "CVS itself stops" in remarks(copy_of(tmp_path, PRESENT, {"gpu_name": "MI350X"}))["gpu_name"]


def test_the_word_that_chooses_primus_is_the_families() -> None:
    assert {name: family.image for name, family in families().items() if family.image} == {"primus": "primus"}


def stored(version: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A stored version of a job file and its thresholds."""
    document: dict[str, Any] = json.loads(PRESENT.read_text("utf-8"))
    cells = json.loads(PRESENT.with_name(THRESHOLDS).read_text("utf-8"))
    document["gpu_name"] = version["gpu"]
    document["train_params"] |= version["train"]
    names = [f"MBS={mbs},GBS={gbs},PRECISION={precision}" for mbs, gbs, precision in version["cells"]]
    if version.get("named"):
        sizes = [
            {"name": f"m_{key}", "micro_batch_size": str(mbs), "global_batch_size": str(gbs), "precision": key}
            for mbs, gbs, key in version["cells"]
        ]
        document["sweep"] = {"combinations": {f"run-{index}": size for index, size in enumerate(sizes)}}
        document["container"]["env"] |= {"NNODES": "<changeme>", "NCCL_IB_GID_INDEX": "3", "NCCL_DEBUG": "ERROR"}
    else:
        document["sweep"] = {"combinations": {name: {"training_iterations": "20"} for name in names}}
    document["sweep"]["runs"] = list(document["sweep"]["combinations"])
    if not version.get("nodes"):
        del document["scaling_baseline"], document["checkpoint"]["checkpoint_dir"], document["verify_network_errors"]
        del document["container"]["env"]["NCCL_IB_HCA"], document["container"]["runtime"]["args"]["volumes"][2:]
        document["container"]["env"]["MASTER_ADDR"] = "127.0.0.1"
        document["smoke"]["global_batch_size"] = "8"
    return document, dict.fromkeys(names, cells[FP8])


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every leaf of a document that is no comment."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, item in items if not str(key).startswith("_") for leaf in leaves(item, (*path, key))]
    yield from below or ([(path, value)] if path else [])


def edited(document: Any, path: tuple[Any, ...], delete: bool) -> Any:
    """A copy with a leaf deleted, or with another value of its type."""
    result = copy.deepcopy(document)
    at = result
    for key in path[:-1]:
        at = at[key]
    value = at[path[-1]]
    if delete:
        del at[path[-1]]
    elif isinstance(value, bool) or value in ("True", "False"):
        at[path[-1]] = {"True": "False", "False": "True"}[str(value)] if isinstance(value, str) else not value
    else:
        at[path[-1]] = value + 1 if isinstance(value, int | float) else f"{value}1"
    return result


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: f"{version['file']}@{version['commit']}")
def test_no_leaf_of_a_stored_version_is_silent(version: dict[str, Any], tmp_path: Path) -> None:
    """Delete or change any: what the import says of some run changes."""
    document, cells = stored(version)
    silent = silent_leaves(tmp_path, document, cells, "mi300x" if "change" in version["gpu"] else None)
    assert silent == []


@pytest.mark.parametrize("file", [SWEEP, LATER], ids=lambda file: file.stem)
def test_no_leaf_of_an_older_form_is_silent(file: Path, tmp_path: Path) -> None:
    beside = file.with_name(f"{file.stem}_threshold.json")
    cells = json.loads(beside.read_text("utf-8")) if beside.exists() else {}
    assert silent_leaves(tmp_path, json.loads(file.read_text("utf-8")), cells, None) == []


def silent_leaves(folder: Path, document: dict[str, Any], cells: dict[str, Any], gpu: str | None) -> list[str]:
    """The leaves that make no difference to any run, as paths."""
    listed = document.get("sweep", {}).get("runs", [None])
    runs = [*listed, "smoke"] if "train_params" in document else listed
    choices = [Choice(gpu=gpu, run=run) for run in runs]
    file = folder / "job.json"
    named = folder / document.get("threshold_json", THRESHOLDS)

    def outcomes(job: Any, thresholds: Any) -> Iterator[Any]:
        file.write_text(json.dumps(job), "utf-8")
        named.write_text(json.dumps(thresholds), "utf-8")
        yield from (outcome(file, choice) for choice in choices)

    before = list(outcomes(document, cells))
    silent = []
    for index, part in enumerate((document, cells)):
        for path, _ in leaves(part):
            if index == 1 and cells[path[0]] in list(cells.values())[: list(cells).index(path[0])]:
                continue  # another cell has the same figures
            for delete in (True, False):
                both = (edited(part, path, delete), cells) if index == 0 else (document, edited(part, path, delete))
                if all(now == then for now, then in zip(outcomes(*both), before, strict=True)):
                    silent.append(f"{'delete' if delete else 'change'} {'.'.join(map(str, path))}")
    return silent
