"""Variables of a job: what would do nothing is refused, and what names devices is held against the node's state."""

from pathlib import Path
from typing import Any

import pytest

from shakedown.desired import profiles
from shakedown.desired.layers import HostLayers, Layer
from shakedown.jobs.plan import PlanError
from shakedown.recipes.recipe import recipes
from shakedown.recipes.variables import meant
from shakedown.runner.features import resolve
from tests.at_once import at_once
from tests.plans import IMAGE, rack, small
from tests.states import unreadable
from tests.unit.test_preflight import LLAMA, found

RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "WORLD_SIZE", "RANK", "LOCAL_RANK", "PET_NNODES")
SIZES = {  # of a file that only the nodes have
    "micro_batch_size": 1,
    "global_batch_size": 8,
    "seq_length": 512,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
}
TWO = "llama3.1-8b-fp8-2nodes"


def of_recipe(name: str, **smoke: Any) -> dict[str, str]:
    """What is refused of a recipe before the first connection, by path."""
    image = {"image": "megatron"} if "container" in recipes()[name].family.runtimes else {}
    gpus = {"gpu": "radeon"} if name.startswith("radeon") else {}
    return found({"recipe": name, **image, **smoke}, **gpus)


def refused(environment: dict[str, str], nodes: int = 2, **more: Any) -> list[str]:
    with pytest.raises(PlanError) as error:
        rack(TWO, nodes, environment=environment, **more)
    return [str(problem) for problem in error.value.problems]


@at_once("name", recipes())
def test_no_recipe_takes_the_numbers_of_its_ranks_from_the_environment(name: str) -> None:
    problems = of_recipe(name, environment=dict.fromkeys(RENDEZVOUS, "7"))
    for variable in RENDEZVOUS:
        text = problems[f"smoke.environment.{variable}"]
        assert "expected no such variable: it is derived from the nodes" in text


def test_the_environments_of_gpu_and_nic_are_no_way_around() -> None:
    gpu = {"profile": "mi300x", "environment": {"WORLD_SIZE": "8", "MBS": "4", "HF_TOKEN": "hf_secret"}}
    rdma = {"environment": {"NCCL_IB_HCA": "bnxt_re0", "MASTER_ADDR": "node01"}}
    problems = found(LLAMA, gpu=gpu, nic="thor2", rdma=rdma)
    assert set(problems) == {
        "gpu.environment.WORLD_SIZE",
        "gpu.environment.MBS",
        "gpu.environment.HF_TOKEN",
        "rdma.environment.NCCL_IB_HCA",
        "rdma.environment.MASTER_ADDR",
    }
    assert "expected smoke.environment.NCCL_IB_HCA" in problems["rdma.environment.NCCL_IB_HCA"]
    assert "expected smoke.options.MBS" in problems["gpu.environment.MBS"]
    assert "hf_secret" not in str(problems)


def test_what_a_script_sets_itself_is_no_variable() -> None:
    environment = {"HIDDEN_SIZE": "64", "EXP_NAME": "mine", "NO_TRAINING": "1"}
    problems = found({**LLAMA, "environment": {**environment, "NCCL_PROTO": "LL", "OMP_NUM_THREADS": "4"}})
    assert set(problems) == {f"smoke.environment.{name}" for name in environment}
    assert "train_llama3.sh sets it itself" in problems["smoke.environment.HIDDEN_SIZE"]
    assert "it names the log" in problems["smoke.environment.EXP_NAME"]
    assert "fixes it to 1" in of_recipe("deepseek-v2-lite", environment={"TP": "2"})["smoke.environment.TP"]


# -- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NCCL_SOCKET_IFNAME", "eth9", "eth9 is none"),
        ("NCCL_SOCKET_IFNAME", "=eth", "eth is none"),
        ("NCCL_SOCKET_IFNAME", "eth0,ib", "ib is none"),
        ("NCCL_SOCKET_IFNAME", "^eth,ens", "a list that leaves some of the devices of the node (eth0, ens0np0, "),
        ("NCCL_OOB_NET_IFNAME", "ib0", "ib0 is none"),
        ("GLOO_SOCKET_IFNAME", "eth", "eth is none"),
        ("TP_SOCKET_IFNAME", "eth1", "eth1 is none"),
        ("NCCL_IB_HCA", "mlx5", "devices of the node (bnxt_re0, "),
        ("NCCL_IB_HCA", "=bnxt_re", "bnxt_re is none"),
        ("NCCL_IB_HCA", "bnxt_re0,,bnxt_re1", "an empty entry is none"),
        ("NCCL_IB_HCA", "bnxt_re0:2", "ports of bnxt_re0 (1 to 1); 2 is none"),
        ("UCX_NET_DEVICES", "mlx5_0:1", "mlx5_0 is none"),
        ("NCCL_IB_GID_INDEX", "7", "the index of a RoCE v2 entry of bnxt_re0 (3)"),
        ("NCCL_IB_GID_INDEX", "three", "the index of a RoCE v2 entry, or -1"),
    ],
)
def test_a_name_that_no_node_has_is_refused_once(variable: str, value: str, expected: str) -> None:
    (problem,) = refused({variable: value})
    assert problem.startswith(f"node[01-02]: smoke.environment.{variable} = {value}: expected ")
    assert expected in problem


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NCCL_SOCKET_IFNAME", "eth"),
        ("NCCL_SOCKET_IFNAME", "=eth0,ens1np0"),
        ("NCCL_SOCKET_IFNAME", "^docker,lo"),
        ("NCCL_SOCKET_IFNAME", ""),
        ("GLOO_SOCKET_IFNAME", "eth0,ens0np0"),
        ("NCCL_IB_HCA", "bnxt_re"),
        ("NCCL_IB_HCA", "=bnxt_re0:1,bnxt_re7"),
        ("NCCL_IB_HCA", "^bnxt_re0"),
        ("UCX_NET_DEVICES", "all"),
        ("UCX_NET_DEVICES", "bnxt_re0:1,eth0"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("NCCL_IB_GID_INDEX", "-1"),
    ],
)
def test_names_that_each_node_has_reach_the_job(variable: str, value: str) -> None:
    assert rack(TWO, 2, environment={variable: value}).nodes[1].environment[variable] == value


def test_a_device_that_does_not_work_is_named_with_its_state_and_its_node() -> None:
    changes = {"node02": {"interfaces.1.up": False}}
    (problem,) = refused({"NCCL_SOCKET_IFNAME": "ens0np0"}, changes=changes)
    assert problem.startswith("node02: ") and problem.endswith("; ens0np0 is down or has no address")
    problems = refused({"NCCL_IB_HCA": "bnxt_re4"}, changes={"node02": {"rdma.4.state": "DOWN"}})
    assert any(text.startswith("node02: smoke.env") and text.endswith("bnxt_re4 is DOWN") for text in problems)


def test_an_index_is_held_against_the_devices_that_the_job_uses() -> None:
    moved = {"rdma.3.gids.3.index": 5}
    (problem,) = refused({"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "bnxt_re3"}, nodes=1, changes={"node01": moved})
    assert "entry of bnxt_re3 (5)" in problem
    environment = {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "=bnxt_re0"}
    assert rack(TWO, 1, {"node01": moved}, environment=environment)


def test_without_rdma_its_names_are_not_looked_at_and_what_cannot_be_read_is_no_answer() -> None:
    environment = {"NCCL_IB_HCA": "mlx5_0", "NCCL_IB_DISABLE": "1"}
    assert rack(TWO, 2, environment=environment).nodes[0].environment["NCCL_IB_HCA"] == "mlx5_0"
    unread = {"node01": {"rdma": unreadable("not permitted")}}
    (problem,) = refused({"NCCL_IB_HCA": "bnxt_re0"}, nodes=1, changes=unread)
    assert "expected a list of the RDMA devices, which is unreadable" in problem
    with pytest.raises(PlanError, match="devices of the node"):
        small(environment={"GLOO_SOCKET_IFNAME": "ib0"})


# -- data -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "options", "wrong"),
    [
        ("llama3.1-8b-fp8", {"MOCK_DATA": 0, "DATA_PATH": "/data/x"}, ["DATA_PATH"]),
        ("llama3.1-8b-fp8", {"DATA_PATH": "0.5 /data/x 0.5 /more/y"}, ["DATA_PATH"]),
        ("llama2-7b-fp8", {"MOCK_DATA": 0, "DATA_PATH": "/data/x", "vocab-file": "/v"}, ["DATA_PATH", "vocab-file"]),
        ("deepseek-v2-lite", {"MOCK_DATA": 0}, ["DATA_DIR"]),
        ("stanford-gpt", {"data-path": "/d", "vocab-file": "/data/v", "merge-file": "/m"}, ["data-path", "merge-file"]),
        ("primus-llama3.1-8b-fp8", {**SIZES, "config": "/mine/x.yaml"}, ["checkout", "config"]),
        ("primus-llama3.1-8b-fp8", {"train_data_path": "/mine/x"}, ["checkout", "train_data_path"]),
        ("primus-llama3.1-8b-fp8", {**SIZES, "config": "/primus/examples/x.yaml"}, ["checkout"]),
        ("primus-llama3.1-8b-fp8", {"checkout": "/workspace/Primus"}, ["checkout"]),
        ("llama3.1-8b-fp8", {}, []),
        ("deepseek-v2-lite", {"DATA_DIR": "/nowhere"}, []),
    ],
)
def test_data_reach_a_container_through_a_volume_only(recipe: str, options: dict[str, Any], wrong: list[str]) -> None:
    volumes = {"/srv/data": "/data"} if recipe == "stanford-gpt" else {}
    problems = of_recipe(recipe, options=options, volumes=volumes)
    assert set(problems) == {f"smoke.options.{name}" for name in wrong}
    for text in problems.values():
        assert "expected a path below one of smoke.volumes, as the container sees it (" in text
        assert '; give "volumes": {"FOLDER OF THE HOST": "/' in text
    every = {
        "/h": "/primus",
        "/i": "/workspace",
        "/srv": "/data",
        "/a": "/d",
        "/b": "/m",
        "/c": "/v",
        "/e": "/mine",
        "/f": "/more",
        "/g": "/root",
    }
    assert of_recipe(recipe, options=options, volumes=every) == {}


def test_a_volume_in_a_home_that_only_the_node_knows_may_hold_the_data() -> None:
    options = {"MOCK_DATA": 0, "DATA_PATH": "/home/ada/data/x"}
    smoke = {**LLAMA, "options": options, "volumes": {"{home}/data": "{home}/data"}}
    values = {"gpu": "mi300x", "images": {"megatron": IMAGE}, "smoke": smoke}
    assert resolve([HostLayers("n1", [Layer("site", values)], "ada")]).states


# The right names are those of the sources in variable_names.json and variables.toml.
MISSPELT = {
    "MASTER_ADR": "MASTER_ADDR",
    "WORLDSIZE": "WORLD_SIZE",
    "NODE_RNK": "NODE_RANK",
    "NCCL_IB_HCCA": "NCCL_IB_HCA",
    "NCCL_IB_HAC": "NCCL_IB_HCA",
    "NCCL_IB_HCS": "NCCL_IB_HCA",
    "NCCL_HCA_IB": "NCCL_IB_HCA",
    "NCCL_DEBUGG": "NCCL_DEBUG",
    "nccl_debug": "NCCL_DEBUG",
    "RCCL_DEBUG": "NCCL_DEBUG",
    "NCCL_SOCKET_IFACE": "NCCL_SOCKET_IFNAME",
    "NCCL_IB_GID_IDX": "NCCL_IB_GID_INDEX",
    "HSA_OVERIDE_GFX_VERSION": "HSA_OVERRIDE_GFX_VERSION",
    "HAS_ENABLE_SDMA": "HSA_ENABLE_SDMA",
    "HSA_NO_SCRATCH_RECLAM": "HSA_NO_SCRATCH_RECLAIM",
    "HIP_VISIBLE_DEVICE": "HIP_VISIBLE_DEVICES",
    "GPU_MAX_HW_QUEUE": "GPU_MAX_HW_QUEUES",
    "TORCH_NCCL_BLOKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "NVTE_FLASH_ATN": "NVTE_FLASH_ATTN",
    "MIOPEN_FIND_MDOE": "MIOPEN_FIND_MODE",
    "UCX_NET_DEVICE": "UCX_NET_DEVICES",
    "OMP_NUM_THREAD": "OMP_NUM_THREADS",
}
# Of the public scripts' own variables, those that no library reads: slips there, too.
SLIPS = {
    "CUDA_DEVICE_MAX_CONNECTION": "CUDA_DEVICE_MAX_CONNECTIONS",
    "NCCL_MAX_RINGS": "NCCL_MAX_NRINGS",
}


@at_once("name", MISSPELT)
def test_a_misspelt_variable_is_refused_with_the_name_that_was_meant(name: str) -> None:
    problems = of_recipe(TWO, environment={name: "1"})
    assert f"did you mean {MISSPELT[name]}?" in problems[f"smoke.environment.{name}"]
    gpu = {"profile": "mi300x", "environment": {name: "1"}}
    assert f"gpu.environment.{name}" in found(LLAMA, gpu=gpu)


def test_a_variable_of_the_recipe_s_script_is_meant_where_it_has_that_script() -> None:
    slip = {"EVAL_INTERVALL": "1"}
    refused = of_recipe("llama2-7b-bf16", environment=slip)
    assert "did you mean EVAL_INTERVAL?" in refused["smoke.environment.EVAL_INTERVALL"]
    assert of_recipe("gpt-small", environment=slip) == {}


def test_the_variables_of_public_scripts_are_no_misspelt_ones() -> None:
    lines = (Path(__file__).parents[1] / "data/public_variables.txt").read_text().splitlines()
    names = [line for line in lines if not line.startswith("#")]
    assert len(names) > 400
    assert {name: near for name in names if (near := meant(name))} == SLIPS


@at_once("name", recipes())
def test_what_the_project_itself_sets_is_no_misspelt_name(name: str) -> None:
    family = recipes()[name].family
    names = {*family.environment, *(word for part in family.conditional for word in part.environment)}
    assert not [word for word in names if meant(word)]


def test_names_of_a_site_are_its_own() -> None:
    own = dict.fromkeys(("SCRATCH_DIR", "RACK", "SITE_LOG", "MY_MODEL_2", "OMPI_MCA_btl", "http_proxy"), "x")
    assert not [path for path in of_recipe(TWO, environment=own) if path.startswith("smoke.environment")]


@at_once("profile", [(kind, name) for kind in ("gpu", "nic") for name in profiles.names(kind)])
def test_what_a_profile_sets_is_no_misspelt_name(profile: tuple[str, str]) -> None:
    sections = profiles.load(*profile)
    names = [
        word for section in sections.values() if isinstance(section, dict) for word in section.get("environment", ())
    ]
    assert names or profile[1] not in ("thor2", "ainic")
    assert not [word for word in names if meant(word)]
