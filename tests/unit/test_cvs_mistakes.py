"""What the suite that these files come from gets wrong (its own reading of them): one test for each mistake."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from shakedown.desired.cvs.importing import import_file
from shakedown.desired.cvs.job import Choice
from shakedown.desired.layers import HostLayers, Layer
from shakedown.desired.profiles import load
from shakedown.runner.features import resolve
from tests.cvs_files import CELL, DISTRIBUTED, FILLED, ONE, SINGLE, SWEEP, copy_of, errors, planned

SINGLE_CELL = "model_params.single_node.llama3_1_8b.mi300x"
READY = {"config.training_iterations": "30"}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files name a token's file that this machine has not; an exported one is used instead."""
    monkeypatch.setenv("HF_TOKEN", "hf_exported")


@pytest.mark.parametrize(("precision", "flag"), [("TE_FP16", "0"), ("TE_FP8", "1"), ("te_fp8", "1"), ("BF16", "0")])
def test_6_te_fp16_is_sixteen_bits(precision: str, flag: str, tmp_path: Path) -> None:
    file = copy_of(tmp_path, SINGLE, {**READY, f"{SINGLE_CELL}.precision": precision})
    assert planned(import_file(file, ONE), nodes=1).nodes[0].environment["TE_FP8"] == flag


KNOWN = "TE_FP8, TE_FP16, TE_BF16, TE_F16, FP8, BF16"


@pytest.mark.parametrize("precision", ["TE_FP4", "MXFP8", "FP16", "fp-8", "8"])
def test_6_an_unknown_precision_is_an_error_and_never_fp8(precision: str, tmp_path: Path) -> None:
    found = errors(copy_of(tmp_path, SINGLE, {**READY, f"{SINGLE_CELL}.precision": precision}))
    assert list(found) == [f"{SINGLE_CELL}.precision"]
    assert found[f"{SINGLE_CELL}.precision"].startswith(f"{precision!r}: expected one of {KNOWN} (CVS ")


def test_7_mock_data_false_asks_for_real_data(tmp_path: Path) -> None:
    found = import_file(copy_of(tmp_path, SINGLE, {**READY, "config.mock_data": "False"}), ONE)
    assert [problem.path for problem in found.open] == ["config.dataset_source"]
    assert found.values["smoke"]["options"]["DATA_PATH"] == "<changeme>"
    site = {"options": {"DATA_PATH": "/data/wiki"}, "volumes": {"/srv/data": "/data"}}
    plan = planned(found, nodes=1, smoke=site)
    environment = plan.nodes[0].environment
    assert (environment["MOCK_DATA"], environment["DATA_PATH"]) == ("0", "/data/wiki")


def test_7_shm_size_reaches_the_container(tmp_path: Path) -> None:
    plan = planned(import_file(copy_of(tmp_path, SINGLE, {**READY, "config.shm_size": "17G"}), ONE), nodes=1)
    assert "--shm-size 17G" in " ".join(plan.nodes[0].command)


@pytest.mark.parametrize(("file", "choice"), [(SINGLE, "True"), (DISTRIBUTED, "False")])
def test_7_distributed_training_must_fit_the_models(file: Path, choice: str, tmp_path: Path) -> None:
    ready = READY if file is SINGLE else FILLED
    (text,) = errors(copy_of(tmp_path, file, {**ready, "config.distributed_training": choice})).values()
    assert "llama3_1_8b on mi300x" in text


def test_7_distributed_training_chooses_where_a_file_has_both(tmp_path: Path) -> None:
    models = json.loads(SINGLE.read_text("utf-8"))["model_params"]["single_node"]
    both = {**FILLED, "model_params.single_node": models}
    undecided = copy_of(tmp_path, DISTRIBUTED, both | {"config.distributed_training": ""})
    assert "(multi_node)" in errors(undecided)["model_params"]
    for flag, nodes in (("True", 4), ("False", 1)):
        found = import_file(copy_of(tmp_path, DISTRIBUTED, both | {"config.distributed_training": flag}), ONE)
        assert found.values["smoke"]["expect_nodes"] == nodes


def test_7_a_dataset_source_is_refused_by_name(tmp_path: Path) -> None:
    found = errors(copy_of(tmp_path, SINGLE, {**READY, "config.dataset_source": {"wiki": "/data/wiki"}}))
    assert "smoke.options.DATA_PATH" in found["config.dataset_source"]


def test_8_no_token_stands_in_a_command_or_an_environment(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hf_abcdefgh", "utf-8")
    token.chmod(0o600)
    file = copy_of(tmp_path, SINGLE, {**READY, "config.hf_token_file": str(token)})
    found = import_file(file, ONE)
    plan = planned(found, nodes=1)
    assert plan.nodes[0].secrets == ["HF_TOKEN"]
    assert "hf_abcdefgh" not in plan.model_dump_json()
    assert str(token) not in plan.model_dump_json(), "the controller's path is nobody's business on a node"


@pytest.mark.parametrize("path", ["config.hf_token", "container.runtime.args.env.HF_TOKEN"])
def test_8_a_token_in_the_file_itself_is_refused_and_not_repeated(path: str, tmp_path: Path) -> None:
    found = errors(copy_of(tmp_path, SWEEP, {path: "hf_abcdefgh"}), Choice(run="mbs2-fp8"))
    assert path in found
    assert "hf_abcdefgh" not in str(found)


def test_10_what_is_typed_for_all_nodes_is_derived_or_checked(tmp_path: Path) -> None:
    typed = {
        "config.nnodes": "4",
        "config.master_address": "10.9.9.9",
        "config.nccl_socket_ifname": "eth0",
        "config.gloo_socket_ifname": "eth0",
        "config.nccl_ib_hca_list": ",".join(f"bnxt_re{index}" for index in range(8)),
        "config.nccl_ib_gid_index": "1",
    }
    found = import_file(copy_of(tmp_path, DISTRIBUTED, {**FILLED, **typed}), ONE)
    (derived,) = [remark for remark in found.of_kind("derived") if remark.path == "config.master_address"]
    assert "not taken over" in derived.why
    plan = planned(found, nodes=4)
    assert plan.master_address == "10.0.0.1"
    assert [node.node_rank for node in plan.nodes] == [0, 1, 2, 3]
    assert {node.environment["NCCL_IB_GID_INDEX"] for node in plan.nodes} == {"3"}, "the fact decides"
    assert "the usual GID index of thor2 is 1, the tables say 3" in str(plan.derived)


@pytest.mark.parametrize(
    ("parameter", "value", "complaint"),
    [
        ("config.nnodes", "9", "at least seen_nodes = 9"),
        ("config.nccl_socket_ifname", "ens51f1np1", "smoke.interface = ens51f1np1"),
        ("config.nccl_ib_hca_list", "mlx5_0,mlx5_1", "2 ACTIVE thor2 devices"),
    ],
)
def test_10_what_is_typed_wrongly_is_found_by_the_plan(
    parameter: str, value: str, complaint: str, tmp_path: Path
) -> None:
    found = import_file(copy_of(tmp_path, DISTRIBUTED, {**FILLED, parameter: value}), ONE)
    with pytest.raises(ValueError, match=complaint):
        planned(found, nodes=4)


@pytest.mark.parametrize("family", ["thor2", "ainic", "cx7"])
def test_12_each_nic_type_changes_what_is_wanted(family: str, tmp_path: Path) -> None:
    volumes = {"config.container_config.volume_dict": {"/home/{user-id}": "/home/{user-id}"}}
    found = import_file(copy_of(tmp_path, DISTRIBUTED, {**FILLED, **volumes, "config.nic_type": family}), ONE)
    state = resolve([HostLayers("n1", [Layer("file", found.values)])]).states["n1"]
    profile: dict[str, Any] = load("nic", family)["rdma"]
    assert state.rdma.environment == profile["environment"]
    assert state.rdma.modules == profile["modules"]
    assert state.rdma.vendor == profile["vendor"]


def test_12_an_unknown_nic_type_and_another_familys_library_are_errors(tmp_path: Path) -> None:
    assert (
        "ainic or cx7 or thor2"
        in errors(copy_of(tmp_path, DISTRIBUTED, {**FILLED, "config.nic_type": "cx6"}))["config.nic_type"]
    )
    found = errors(copy_of(tmp_path, DISTRIBUTED, {**FILLED, "config.nic_type": "ainic"}))
    assert "the library of ainic, libionic" in found["config.container_config.volume_dict"]


def test_15_every_changeme_is_listed_with_those_in_names_of_folders(tmp_path: Path) -> None:
    volumes = {"/home/<changeme>": "/home/<changeme>"}
    changes = {
        "config.container_image": "<changeme>",
        "config.shm_size": "<changeme> = memory",
        "config.container_config.volume_dict": volumes,
        f"{CELL}.precision": "<changeme>",
        f"{CELL}.model_size": "<changeme>-in billions",
    }
    found = import_file(copy_of(tmp_path, DISTRIBUTED, changes), ONE)
    assert {problem.path for problem in found.open} == set(changes) | set(FILLED)
    with pytest.raises(ValueError, match="<changeme>") as raised:
        resolve([HostLayers("n1", [Layer("file", found.values)])])
    for path in ("images.megatron", "smoke.shm_size", "smoke.volumes", "smoke.options.MODEL_SIZE", "smoke.iterations"):
        assert path in str(raised.value)


HOSTILE = {
    "a number of 5000 digits": '{"config": {"nnodes": ' + "9" * 5000 + "}}",
    "deep objects": '{"a":' * 500 + "1" + "}" * 500,
    "too deep for any reader": "[" * 100_000,
    "many keys, one of them twice": "{" + ", ".join(f'"k{i}": 1' for i in range(50_000)) + ', "k0": 2}',
    "too long": " " * (17 << 20),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_is_made_to_hurt_is_refused_in_words(what: str, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(HOSTILE[what])
    began = time.monotonic()
    assert len("".join(errors(file).values())) < 1000
    assert time.monotonic() - began < 20


def test_what_has_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        (words,) = errors(path).values()
        assert "a file" in words
