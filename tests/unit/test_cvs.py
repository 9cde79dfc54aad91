"""The files of CVS' documentation as they stand: what becomes of them, and what a person is told."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.problems import DesiredStateError
from shakedown.recipes.options import choose
from shakedown.recipes.recipe import recipes
from shakedown.runner.features import resolve
from tests.cvs_files import (
    AS_THEY_STAND,
    CELL,
    DELETED,
    DISTRIBUTED,
    FILLED,
    LATER,
    ONE,
    SINGLE,
    copy_of,
    errors,
    planned,
)

TOLD = {"config.container_name", "config.log_dir"}
FACTS = {
    "config.nnodes",
    "config.master_address",
    "config.nccl_ib_hca_list",
    "config.nccl_socket_ifname",
    "config.gloo_socket_ifname",
    "config.nccl_ib_gid_index",
    "config.dataset_source",
    "config.distributed_training",
    "config.container_config.device_list.2",
    "config.container_config.volume_dict",
}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files name a token's file that this machine has not; an exported one is used instead."""
    monkeypatch.setenv("HF_TOKEN", "hf_exported")


def theirs(file: Path, choice: Choice) -> set[str]:
    """What CVS itself would train otherwise than the file says: its batches are for 32 GPUs, its TE_FP16 is FP8."""
    (gpus,) = (models[choice.model] for models in json.loads(file.read_text("utf-8"))["model_params"].values())
    row = gpus[choice.gpu]
    scaled = int(row["batch_size"]) > 32 and int(row["batch_size"]) % 32 == 0
    return {*(["batch_size"] if scaled else []), *(["precision"] if row["precision"] == "TE_FP16" else [])}


@pytest.mark.parametrize(("file", "choice"), AS_THEY_STAND)
def test_a_file_as_it_stands_lists_all_that_only_a_person_knows(file: Path, choice: Choice) -> None:
    found = import_file(file, choice)
    opened = {problem.path for problem in found.open}
    topology = "multi_node" if file == DISTRIBUTED else "single_node"
    job = f"model_params.{topology}.{choice.model}.{choice.gpu}"
    if file == DISTRIBUTED:
        assert opened == {path.replace(CELL, job) for path in FILLED}
        assert {remark.path for remark in found.of_kind("derived")} == {*FACTS, job}
    else:
        assert opened == {"config.training_iterations"}
        assert {remark.path for remark in found.of_kind("derived")} == {
            "config.nnodes",
            "config.master_address",
            "config.dataset_source",
            job,
        }
    assert found.values["smoke"]["scope"] == ("together" if file == DISTRIBUTED else "each")
    assert {remark.path for remark in found.of_kind("refused")} == TOLD
    assert {remark.path.removeprefix(f"{job}.") for remark in found.of_kind("flagged")} == theirs(file, choice)
    assert all(remark.why for remark in found.remarks)


@pytest.mark.parametrize(("file", "choice"), AS_THEY_STAND)
def test_every_model_parameter_reaches_the_training_script(file: Path, choice: Choice) -> None:
    (gpus,) = (models[choice.model] for models in json.loads(file.read_text("utf-8"))["model_params"].values())
    row = gpus[choice.gpu]
    values = import_file(file, choice).values
    site = {"smoke": {"iterations": 30, "expect": {"throughput_per_gpu": 1.0, "tokens_per_gpu": 1.0}}, "nic": "thor2"}
    smoke = resolve([HostLayers("n", [Layer("file", values), Layer("site", site)])]).states["n"].smoke
    assert smoke is not None
    chosen, problems = choose(recipes()[smoke.recipe], smoke)
    variables = chosen.variables()
    assert problems == []
    assert chosen.changed == [], "the recipe is the document's own, whose figures hold"
    names = {
        "model_size": "MODEL_SIZE",
        "batch_size": "BS",
        "micro_batch_size": "MBS",
        "sequence_length": "SEQ_LENGTH",
        "tensor_parallelism": "TP",
        "pipeline_parallelism": "PP",
        "recompute": "RECOMPUTE",
        "fsdp": "FSDP",
        "tokenizer_model": "TOKENIZER_MODEL",
    }
    assert {parameter: variables[name] for parameter, name in names.items()} == {key: row[key] for key in names}
    assert variables["TE_FP8"] == {"TE_FP8": "1", "TE_FP16": "0"}[row["precision"]]
    assert (variables["MOCK_DATA"], variables["TOTAL_ITERS"]) == ("1", "30")


def test_the_single_node_file_is_planned_as_it_says(tmp_path: Path) -> None:
    file = copy_of(tmp_path, SINGLE, {"config.training_iterations": "30"})
    plan = planned(import_file(file, ONE), nodes=1)
    command = " ".join(plan.nodes[0].command)
    assert plan.expect == {"throughput_per_gpu": 380.0, "tokens_per_gpu": 6500.0, "elapsed_time_per_iteration": 12000.0}
    assert (plan.iterations, plan.global_batch, plan.micro_batch, plan.seq_length) == (30, 128, 2, 8192)
    assert "--shm-size 128G" in command
    assert "--device /dev/dri --device /dev/kfd" in command
    assert "--volume /home/root:/home/root" in command
    assert plan.nodes[0].environment["DATA_CACHE_PATH"] == "/home/root/cache"
    assert plan.image is not None and plan.image.startswith("rocm/megatron-lm")


def test_the_distributed_file_is_planned_with_the_nodes_own_facts(tmp_path: Path) -> None:
    plan = planned(import_file(copy_of(tmp_path, DISTRIBUTED, FILLED), ONE), nodes=4)
    first = plan.nodes[0]
    assert (len(plan.nodes), plan.master_address, first.interface) == (4, "10.0.0.1", "eth0")
    assert (first.hca, first.gid_index) == ([f"bnxt_re{index}" for index in range(8)], 3)
    assert first.environment["NCCL_DEBUG"] == "WARN"  # the file says ERROR, at which no run could be judged
    command = " ".join(first.command)
    library = "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so"
    assert f"source=/usr/local/lib/libbnxt_re-rdmav34.so,target={library}.host" in command
    assert f"--copy {library}.host {library}" in command
    assert command.count("/lib/libibverbs.d,target") == 1
    assert "--device /dev/infiniband " in command, "as a volume alone, the container could not open them"
    assert "/tmp/TRAINING_LOGS:/workspace/Megatron-LM/output" in command
    assert not any("expect_nodes" in item.why for item in plan.derived)


def test_figures_for_four_nodes_are_flagged_on_two(tmp_path: Path) -> None:
    file = copy_of(tmp_path, DISTRIBUTED, {**FILLED, "config.nnodes": "2"})
    found = import_file(file, ONE)
    flagged = {remark.path: remark.why for remark in found.of_kind("flagged")}
    assert "4 nodes" in flagged.pop("config.nnodes")
    assert list(flagged) == [f"{CELL}.batch_size"] and "trains with 64" in flagged[f"{CELL}.batch_size"]
    plan = planned(found, nodes=2)
    (told,) = [item for item in plan.derived if item.name == "expected figures" and "expect_nodes" in item.why]
    assert "for 4 node(s), not 2" in told.why and "throughput_per_gpu 610" in told.value
    assert plan.expect == {} and "throughput_per_gpu" in plan.recorded


def test_fewer_nodes_than_the_file_says_are_refused_by_the_plan(tmp_path: Path) -> None:
    found = import_file(copy_of(tmp_path, DISTRIBUTED, {**FILLED, "config.nnodes": "4"}), ONE)
    with pytest.raises(ValueError, match="at least seen_nodes = 4"):
        planned(found, nodes=2)


def test_several_jobs_need_a_choice_and_all_are_named() -> None:
    text = errors(SINGLE, Choice())["model_params"]
    for each in ("llama3_1_8b on mi300x", "llama3_1_8b on mi325", "llama3_1_70b on mi300x", "llama3_1_70b on mi325"):
        assert each in text
    assert "llama3_1_405b on mi300x" in errors(SINGLE, Choice(model="llama3_1_405b", gpu="mi300x"))["model_params"]
    assert import_file(SINGLE, Choice(model="llama3_1_70b", gpu="mi325x")).values["gpu"] == "mi325x"


def test_missing_values_are_open_like_changeme() -> None:
    found = import_file(SINGLE, ONE)
    assert found.values["smoke"]["iterations"] == "<changeme>"


@pytest.mark.parametrize(
    "parameter", ["micro_batch_size", "batch_size", "precision", "model_size", "fsdp", "tokenizer_model"]
)
def test_a_parameter_that_is_left_out_has_no_default_in_secret(parameter: str, tmp_path: Path) -> None:

    cell = "model_params.single_node.llama3_1_8b.mi300x"
    file = copy_of(tmp_path, SINGLE, {f"{cell}.{parameter}": DELETED, "config.training_iterations": "30"})
    (problem,) = import_file(file, ONE).open
    assert (problem.path, problem.value) == (f"{cell}.{parameter}", "nothing")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"config": {', "JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[1]", "a JSON object"),
        (b'{"config": {"shm_size": "1G", "shm_size": "2G"}}', "given twice"),
        (b"[" * 100_000, "JSON"),
        (b"{}", "model's parameters"),
    ],
)
def test_an_unusable_file_says_why(content: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    result = CliRunner().invoke(main, ["import-cvs", str(file)])
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""


def test_every_error_of_a_file_at_once(tmp_path: Path) -> None:
    cell = "model_params.single_node.llama3_1_8b.mi300x"
    changes = {
        "config.training_iterations": "thirty",
        "config.mock_data": "perhaps",
        "config.nccl_treads": "4",
        f"{cell}.micro_batch_size": "2.5",
        f"{cell}.precision": "INT4",
        f"{cell}.result_dict.throughput": "1",
        f"{cell}.result_dict.tokens_per_gpu": "NaN",
    }
    assert set(errors(copy_of(tmp_path, SINGLE, changes))) == set(changes)


def test_the_command_prints_a_module_that_an_inventory_can_import(tmp_path: Path) -> None:
    named = copy_of(tmp_path, SINGLE, {"config.training_iterations": "30"})
    file = named.rename(tmp_path / "a\nraise ValueError(1)\n#.json")  # no text of a name becomes a line of code
    result = CliRunner().invoke(main, ["import-cvs", str(file), "--model", "llama3_1_8b", "--gpu", "mi300x"])
    assert result.exit_code == 0, result.output
    (tmp_path / "site.py").write_text(result.stdout, "utf-8")
    layer = runpy.run_path(str(tmp_path / "site.py"))["layer"]
    assert layer == import_file(file, ONE).values
    assert resolve([HostLayers("n", [Layer("group all", layer)])]).states["n"].smoke is not None
    assert "config.log_dir" in result.stderr


def test_the_command_lists_what_is_open_and_exits_with_2() -> None:
    arguments = ["import-cvs", str(DISTRIBUTED), "--model", "llama3_1_8b", "--gpu", "mi300x", "--format", "json"]
    result = CliRunner().invoke(main, arguments)
    document = json.loads(result.stdout)
    assert result.exit_code == 2
    assert [entry["path"] for entry in document["open"]] == list(FILLED)
    assert {entry["path"] for entry in document["derived"]} == FACTS | {CELL}
    assert result.stderr.count("open: ") == 4


def test_a_desired_state_names_a_file_and_gives_what_is_open(tmp_path: Path) -> None:
    site = {
        "cvs": {"file": str(DISTRIBUTED), "model": "llama3_1_8b", "gpu": "mi300x"},
        "nic": "thor2",
        "smoke": {"iterations": 20, "shm_size": "64G", "expect": {"throughput_per_gpu": 600.0, "tokens_per_gpu": 1e4}},
    }
    resolved = resolve([HostLayers(name, [Layer("group rack7", site)], user="ada") for name in ("n1", "n2")])
    state, merged = resolved.states["n1"], resolved.merged["n1"]
    assert state.smoke is not None
    assert (state.smoke.iterations, state.smoke.shm_size, state.smoke.options["MBS"]) == (20, "64G", 2)
    assert state.smoke.hf_token_file == "/home/ada/.hf_token"
    assert merged.origin_of("smoke.options.MBS") == f"cvs {DISTRIBUTED}"
    assert merged.origin_of("smoke.shm_size") == "group rack7"
    assert state.gpu.profile == "mi300x"
    told = list(resolved.notes)
    assert len(told) == len(FACTS | TOLD | {CELL, f"{CELL}.batch_size"}), "once, not once for each host"
    assert all(line.startswith((f"cvs {DISTRIBUTED}: config.", f"cvs {DISTRIBUTED}: {CELL}")) for line in told)


def test_what_stays_open_in_a_named_file_is_refused_before_the_first_connection() -> None:
    layer = Layer("group all", {"cvs": {"file": str(DISTRIBUTED), "model": "llama3_1_8b", "gpu": "mi300x"}})
    with pytest.raises(DesiredStateError) as raised:
        resolve([HostLayers("n1", [layer])])
    figures = {"smoke.expect.throughput_per_gpu", "smoke.expect.tokens_per_gpu"}
    paths = [problem.path for problem in raised.value.problems]
    assert sorted(paths) == sorted(figures | {"rdma.family", "smoke.iterations"}), "each once"
    assert all(problem.where == f"cvs {DISTRIBUTED}" for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ({"file": "/does/not/exist.json"}, "file"),
        ({"model": "llama3_1_8b"}, "cvs.file"),
        ({"file": str(LATER), "modle": "x"}, "cvs.modle"),
        ("file.json", "cvs"),
    ],
)
def test_a_file_that_is_named_wrongly_is_one_error(named: object, path: str) -> None:
    layer = Layer("group all", {"cvs": named, "smoke": {"iterations": 30}})
    with pytest.raises(DesiredStateError) as raised:
        resolve([HostLayers("n1", [layer])])
    assert [problem.path for problem in raised.value.problems] == [path]


def test_the_provider_of_another_family_is_a_contradiction() -> None:
    site = {
        "cvs": {"file": str(DISTRIBUTED), "model": "llama3_1_8b", "gpu": "mi300x"},
        "nic": "ainic",
        "smoke": {"iterations": 20, "expect": {"throughput_per_gpu": 600.0, "tokens_per_gpu": 1e4}},
    }
    with pytest.raises(DesiredStateError, match=r"rdma.provider.name = 'bnxt_re': expected ionic"):
        resolve([HostLayers("n1", [Layer("group all", site)])])


@pytest.mark.parametrize("nic", ["<changeme>", "thor3"])
def test_a_family_that_is_not_there_is_one_error_beside_a_provider(nic: str) -> None:
    provider = {"provider": {"name": "bnxt_re"}}
    with pytest.raises(DesiredStateError) as raised:
        resolve([HostLayers("n1", [Layer("group all", {"gpu": "mi300x", "nic": nic, "rdma": provider})])])
    assert [problem.path for problem in raised.value.problems] == ["rdma.family"]


def test_later_parameters_of_the_older_form() -> None:
    found = import_file(LATER)
    assert found.values["smoke"]["recipe"] == "llama2-7b-fp8"
    assert found.values["smoke"]["interface"] == "eno1"
    assert found.values["smoke"]["environment"]["GLOO_SOCKET_IFNAME"] == "eno2"
    assert found.values["rdma"] == {"usual_gid_index": 3, "devices": ["bnxt_*", "rocep*"]}
    assert [remark.path for remark in found.of_kind("flagged")] == ["config.gloo_socket_ifname"]
