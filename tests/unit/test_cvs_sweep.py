"""The newer form: a sweep of runs, docker's arguments, and a threshold file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from shakedown.logs.metrics import METRICS
from tests.cvs_files import DELETED, SWEEP, copy_of, errors, planned

RUN = Choice(run="mbs2-fp8")
CELL = "MBS=2,GBS=128,PRECISION=FP8"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files name a token's file that this machine has not; an exported one is used instead."""
    monkeypatch.setenv("HF_TOKEN", "hf_exported")


def expected_of(tmp_path: Path, rule: dict[str, Any], metric: str = "throughput_per_gpu") -> Any:
    thresholds = {(CELL, f"training.{metric}"): rule}
    return import_file(copy_of(tmp_path, SWEEP, {}, thresholds), RUN).values["smoke"]["expect"].get(metric)


def refused_rule(tmp_path: Path, metric: str, rule: dict[str, Any]) -> str:
    (text,) = errors(copy_of(tmp_path, SWEEP, {}, {(CELL, f"training.{metric}"): rule}), RUN).values()
    return text


def test_a_run_is_the_model_with_its_combination_over_it() -> None:
    smoke = import_file(SWEEP, RUN).values["smoke"]
    assert (smoke["recipe"], smoke["iterations"], smoke["seen_nodes"]) == ("llama3.1-8b-fp8", 20, 2)
    options = {"MBS": 2, "BS": 128, "TE_FP8": True, "MODEL_SIZE": 8, "SEQ_LENGTH": 8192, "TP": 1, "PP": 1}
    assert options.items() <= smoke["options"].items()
    other = import_file(SWEEP, Choice(run="llama3_1_8b_mbs4_gbs128_BF16")).values["smoke"]
    assert (other["options"]["MBS"], other["options"]["TE_FP8"]) == (4, False)


def test_a_combination_may_change_any_parameter_of_the_model(tmp_path: Path) -> None:
    file = copy_of(tmp_path, SWEEP, {"sweep.combinations.mbs2-fp8.tensor_parallelism": "2"})
    assert import_file(file, RUN).values["smoke"]["options"]["TP"] == 2


def test_a_run_must_be_chosen_and_be_there(tmp_path: Path) -> None:
    assert "mbs2-fp8, mbs4-bf16" in errors(SWEEP, Choice())["run"]
    assert "run" in errors(SWEEP, Choice(run="mbs4-mxfp4")), "a combination that no run names"
    file = copy_of(tmp_path, SWEEP, {"sweep.runs": ["mbs2-fp8", "mbs2-fp9"]})
    assert "one of mbs2-fp8, mbs4-bf16, mbs4-mxfp4" in errors(file, RUN)["sweep.runs.1"]
    without = copy_of(tmp_path, SWEEP, {"sweep.runs": DELETED})
    assert "CVS asks for it" in errors(without, RUN)["sweep.runs"], "its loader never had a default"


def test_a_precision_without_an_option_is_refused_by_name(tmp_path: Path) -> None:
    file = copy_of(tmp_path, SWEEP, {"sweep.runs": ["mbs4-mxfp4"]}, {"MBS=4,GBS=128,PRECISION=MXFP4": {}})
    assert set(errors(file, Choice(run="mbs4-mxfp4"))) == {"sweep.combinations.mbs4-mxfp4.precision"}


def test_model_and_gpu_given_must_be_those_of_the_file() -> None:
    assert set(errors(SWEEP, Choice(model="llama3_1_70b", gpu="mi325", run="mbs2-fp8"))) == {"model", "gpu"}
    assert import_file(SWEEP, Choice(model="llama3.1_8b", gpu="mi300x", run="mbs2-fp8")).values["gpu"] == "mi300x"


def test_every_kind_of_threshold_becomes_a_bound_in_the_metrics_own_direction() -> None:
    smoke = import_file(SWEEP, RUN).values["smoke"]
    assert smoke["expect"] == {
        "throughput_per_gpu": 360.0,  # within 10 % of 400: the lower edge
        "elapsed_time_per_iteration": 12600.0,  # within 5 % of 12000: the upper edge
        "tokens_per_gpu": 5525.0,  # 85 % of a node's 52000 for each of its 8 GPUs, which is more than 5000
        "mem_usage": 0.85,
    }
    other = import_file(SWEEP, Choice(run="mbs4-bf16")).values["smoke"]
    assert other["expect"] == {
        "throughput_per_gpu": 300.0,
        "elapsed_time_per_iteration": 15000.0,
        "tokens_per_gpu": 4000.0,
    }


def test_metric_names_and_directions_are_those_that_are_judged() -> None:
    from shakedown.desired.cvs.figures import METRICS as KNOWN

    assert set(KNOWN) == set(METRICS)
    assert {name: kinds[0] == "min" for name, kinds in KNOWN.items()} == {
        name: metric.direction == "at least" for name, metric in METRICS.items()
    }


def test_a_bound_in_the_wrong_direction_is_an_error(tmp_path: Path) -> None:
    assert "less is better" in refused_rule(tmp_path, "elapsed_time_per_iteration", {"kind": "min", "value": 1})
    assert "more is better" in refused_rule(tmp_path, "throughput_per_gpu", {"kind": "max", "value": 1})


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ({"kind": "min_ratio", "value": 0.8, "reference": "training.tokens_per_gpu"}, "a ratio"),
        ({"kind": "near", "value": 1}, "the kind min"),
        ({"kind": "min"}, "a number above 0"),
        ({"kind": "min", "value": "fast"}, "a number above 0"),
        ({"kind": "min", "value": -1}, "a number above 0"),
        ({"kind": "within", "value": 400}, "tolerance_pct"),
        ({"kind": "within", "value": 400, "tolerance_pct": 120}, "tolerance_pct"),
        ({"kind": "min", "value": 1, "unit": "TFLOP/s"}, "no unit"),
        (400, "the kind min"),
    ],
)
def test_a_rule_that_means_nothing_here_is_refused_by_name(rule: Any, complaint: str, tmp_path: Path) -> None:
    assert complaint in refused_rule(tmp_path, "throughput_per_gpu", rule)


def test_a_bound_on_an_unknown_metric_is_an_error_and_a_mere_record_is_told(tmp_path: Path) -> None:
    assert "throughput_per_gpu" in refused_rule(tmp_path, "speed", {"kind": "min", "value": 1})
    rule = {(CELL, "training.steps_to_target"): {"kind": "info", "value": 0}}
    told = {
        remark.path: remark.why for remark in import_file(copy_of(tmp_path, SWEEP, {}, rule), RUN).of_kind("refused")
    }
    assert "not measured" in told[f"sweep_distributed_threshold.json: {CELL}.training.steps_to_target"]


def test_a_run_without_a_cell_is_recorded_and_it_is_told(tmp_path: Path) -> None:
    file = copy_of(tmp_path, SWEEP, {"sweep.combinations.mbs2-fp8.global_batch_size": "256"})
    found = import_file(file, RUN)
    told = {remark.path: remark.why for remark in found.of_kind("refused")}
    assert "no cell" in told["sweep_distributed_threshold.json: MBS=2,GBS=256,PRECISION=FP8"]
    file = copy_of(tmp_path, SWEEP, {}, {"MBS=2": {}})
    assert list(errors(file, RUN)) == ["sweep_distributed_threshold.json: MBS=2"]


def test_the_threshold_file_is_found_or_its_absence_told(tmp_path: Path) -> None:
    unnamed = copy_of(tmp_path, SWEEP, {"threshold_json": ""})
    assert import_file(unnamed, RUN).values["smoke"]["expect"]["mem_usage"] == 0.85
    own = tmp_path / "sweep_distributed_threshold.json"
    other = own.rename(tmp_path / "aa_threshold.json")
    assert import_file(unnamed, RUN).values["smoke"]["expect"]["mem_usage"] == 0.85, "the only one in the folder"
    second = tmp_path / "bb_threshold.json"
    second.write_text(other.read_text().replace("0.85", "0.95"))
    assert "aa_threshold.json, bb_threshold.json" in errors(unnamed, RUN)["threshold_json"]
    chosen = RUN.model_copy(update={"thresholds": str(second)})
    assert import_file(unnamed, chosen).values["smoke"]["expect"]["mem_usage"] == 0.95
    own.write_text(other.read_text().replace("0.85", "0.75"))
    assert import_file(unnamed, RUN).values["smoke"]["expect"]["mem_usage"] == 0.75, "the file's own name"
    for each in (own, other, second):
        each.unlink()
    assert "threshold_json" in {remark.path for remark in import_file(unnamed, RUN).of_kind("refused")}
    named = copy_of(tmp_path, SWEEP, {"threshold_json": "other.json"})
    assert "No such file" in errors(named, RUN)["file"]


def test_the_threshold_file_answers_what_results_leave_open(tmp_path: Path) -> None:
    undecided = {"sweep.combinations.mbs2-fp8.result_dict.tokens_per_gpu": "<changeme>"}
    found = import_file(copy_of(tmp_path, SWEEP, undecided), RUN)
    assert (found.open, found.values["smoke"]["expect"]["tokens_per_gpu"]) == ([], 5525.0)


def test_without_enforcement_nothing_is_judged_and_it_is_told(tmp_path: Path) -> None:
    undecided = {"sweep.combinations.mbs2-fp8.result_dict.tokens_per_gpu": "<changeme>"}
    found = import_file(copy_of(tmp_path, SWEEP, {"enforce_thresholds": False, **undecided}), RUN)
    assert "expect" not in found.values["smoke"]
    assert found.open == []
    paths = {remark.path for remark in found.of_kind("refused")}
    baseline = {"scaling_baseline.tokens_per_sec_total", "scaling_baseline.num_nodes"}
    assert paths >= {"enforce_thresholds", "threshold_json", *baseline}


def test_without_a_baseline_scaling_is_not_judged_and_it_is_told(tmp_path: Path) -> None:
    found = import_file(copy_of(tmp_path, SWEEP, {"scaling_baseline.tokens_per_sec_total": 0.0}), RUN)
    assert found.values["smoke"]["expect"]["tokens_per_gpu"] == 5000.0
    assert any("scaling_efficiency_pct" in remark.path for remark in found.of_kind("refused"))


def test_another_slope_than_the_gates_is_refused(tmp_path: Path) -> None:
    assert "below zero" in errors(copy_of(tmp_path, SWEEP, {"loss_curve.max_slope": 0.5}), RUN)["loss_curve.max_slope"]


def test_dockers_arguments_reach_the_container(tmp_path: Path) -> None:
    changes = {"config.hca_id_pattern": DELETED}
    plan = planned(import_file(copy_of(tmp_path, SWEEP, changes), RUN), nodes=2)
    node = plan.nodes[0]
    command = " ".join(node.command)
    assert "--privileged" in command
    assert "--shm-size 96G" in command
    assert "--volume /mnt/models:/models:ro" in command
    assert "--device /dev/kfd --device /dev/dri --device /dev/infiniband " in command
    assert node.environment["NCCL_MIN_NCHANNELS"] == "112"
    assert node.environment["NCCL_DEBUG"] == "WARN"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("network", "bridge"),
        ("ipc", "private"),
        ("cap_add", ["SYS_ADMIN"]),
        ("security_opt", ["label=disable"]),
        ("group_add", ["root"]),
        ("ulimit", ["nofile=1"]),
        ("volumes", ["/data"]),
        ("volumes", ["/lib/libibverbs.d:/etc/libibverbs.d"]),
        ("volumes", ["/dev/infiniband:/dev/ib"]),
        ("pid", "host"),
    ],
)
def test_an_argument_that_has_no_place_is_refused_by_name(argument: str, value: Any, tmp_path: Path) -> None:
    path = f"container.runtime.args.{argument}"
    assert list(errors(copy_of(tmp_path, SWEEP, {path: value}), RUN)) == [path]


def test_deepseek_takes_what_its_script_takes(tmp_path: Path) -> None:
    changes: dict[Any, Any] = {
        "framework": "megatron_single",
        "config.nnodes": "1",
        "model_params.model_name": "deepseek_v2_lite",
        "model_params.model_size": "16",
        "model_params.recompute": "1",
    }
    smoke = import_file(copy_of(tmp_path, SWEEP, changes), RUN).values["smoke"]
    assert smoke["recipe"] == "deepseek-v2-lite-fp8"
    assert smoke["options"] == {"AC": "full", "GBS": 128, "MBS": 2, "PR": "fp8", "SEQ_LEN": 8192}
    assert "interface" not in smoke and smoke["scope"] == "each"
    wrong = {"model_params.fsdp": "1"}
    assert set(errors(copy_of(tmp_path, SWEEP, changes | wrong), RUN)) == set(wrong)
    unseen = changes | {"model_params.tensor_parallelism": "8"}
    told = {remark.path: remark.why for remark in import_file(copy_of(tmp_path, SWEEP, unseen), RUN).of_kind("refused")}
    assert "never sees" in told["model_params.tensor_parallelism"]


@pytest.mark.parametrize("model", ["mixtral_8x7b", "qwen3_32b", "gpt"])
def test_a_model_without_a_recipe_is_refused_by_name(model: str, tmp_path: Path) -> None:
    found = errors(copy_of(tmp_path, SWEEP, {"model_params.model_name": model}), RUN)
    assert "llama3, llama2, deepseek_v2" in found["model_params.model_name"]


def test_a_model_size_without_a_recipe_is_refused(tmp_path: Path) -> None:
    found = errors(copy_of(tmp_path, SWEEP, {"model_params.model_size": "405"}), RUN)
    assert found == {"model_params.model_size": "'405': expected one of 8, 70"}


def test_file_systems_below_dev_are_volumes_and_usual_folders_stay_the_profile_s(tmp_path: Path) -> None:
    volumes = ["/dev/shm:/dev/shm", "/dev/infiniband:/dev/infiniband:rw", "/lib/libibverbs.d:/lib/libibverbs.d"]
    values = import_file(copy_of(tmp_path, SWEEP, {"container.runtime.args.volumes": volumes}), RUN).values
    assert values["smoke"]["volumes"] == {"/dev/shm": "/dev/shm"}
    assert "/dev/shm" not in values["smoke"]["devices"] and "/dev/infiniband" in values["smoke"]["devices"]
    assert "config_dirs" not in values.get("rdma", {}).get("provider", {})
    volumes = ["/opt/site/libibverbs.d:/opt/site/libibverbs.d"]
    values = import_file(copy_of(tmp_path, SWEEP, {"container.runtime.args.volumes": volumes}), RUN).values
    assert values["rdma"]["provider"]["config_dirs"] == ["/opt/site/libibverbs.d"]
