"""The checks that travel to a node find there what they find on the controller, whatever the node is like."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shakedown import checks
from shakedown.desired.models import DesiredState, Gpu, Rdma, System, Tuning
from shakedown.desired.resolve import at_home
from shakedown.state.node import NodeState, is_unreadable
from tests.agents import PYTHON, OnTheNode, of_the_controller
from tests.docs.keys import keys_of
from tests.machine_state import machine_home
from tests.states import bare, desired, healthy, image, unreadable, with_
from tests.unit.test_asked_and_answered import ASKED, asking
from tests.unit.test_asked_and_answered import STATES as ANSWERS

IMAGES = {"megatron": "rocm/megatron-lm:v25.5_py310"}
SMOKE = {"recipe": "llama3.1-8b-fp8", "image": "megatron"}
WAIVER = {"reason": "ordered", "owner": "anna", "until": str(datetime.now(UTC).date() + timedelta(days=30))}
DESIRED = {
    "mi300x": desired(),
    "with everything": desired(
        images=IMAGES,
        smoke={**SMOKE, "environment": {"NVTE_CK_USES_BWD_V3": "1", "HF_TOKEN": "hf_abcdefghijk"}},
        tuning={"sysctl": {"kernel.panic": 10}, "modules": ["nvme_tcp"], "memlock": 1024, "pcie_acs": "off"},
        system={"mpi": "installed", "memory": "3T", "disk_free": {"{home}/data": "1G"}, "reboot": "when needed"},
        waivers={
            "small": {**WAIVER, "finding": "memory", "hosts": ["node*"]},
            "slow": {**WAIVER, "finding": "rdma_rate", "parts": ["b83f:d203:0001:0003"]},
            "disk": {**WAIVER, "entry": "nvme_timeout", "hosts": ["node01"]},
        },
    ),
    "another document": desired(
        "mi325x",
        images={"megatron": "rocm/megatron-lm:v25.5_py310"},
        smoke={"recipe": "stanford-bert", "image": "megatron", "environment": {"HSA_ENABLE_SDMA": "0"}},
        tuning={"nmi_watchdog": False},
    ),
    "workstation": desired("radeon", None),
    "no GPU": desired("cpu", None),
}
IMAGE = {
    **image(IMAGES["megatron"], "sha256:" + "1" * 64),
    "labels": {"rocm.version": "6.3.0", "python_version": "3.12"},
}
STATES = {
    "healthy": healthy(),
    "with an image": with_(healthy(2), {"containers.images": [IMAGE]}),
    "slow": with_(healthy(), {("rdma", 3, "rate_gbps"): 200.0}),
    "bare": bare(),
    "half": healthy(gpus=4, hcas=3),
}
VALUES: list[Any] = [
    None,
    0,
    1,
    34,
    -1,
    4096,
    32.0,
    "",
    "0",
    "1",
    "unlimited",
    "ACTIVE",
    "bnxt_re",
    True,
    False,
    [],
    {},
]
REASONS = [unreadable(why, "/x: why") for why in ("missing", "not permitted", "timed out", "malformed", "failed")]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnTheNode]:
    made = OnTheNode(tmp_path_factory.mktemp("agent"))
    yield made
    made.close()


def same(node: OnTheNode, wanted: DesiredState, state: NodeState) -> list[Any]:
    found = checks.evaluate(at_home(wanted, state.account.home), state, "node01")
    there = node.findings(wanted, state)
    assert there == of_the_controller(found)
    return there


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document, and of lists the first entries."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:2])
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


PLACES = {name: list(places(state.model_dump(mode="json"))) for name, state in STATES.items()}


@pytest.mark.parametrize("wanted", DESIRED)
@pytest.mark.parametrize("state", STATES)
def test_the_findings_are_the_controller_s(node: OnTheNode, wanted: str, state: str) -> None:
    found = same(node, DESIRED[wanted], STATES[state])
    assert len(found) > 5 or wanted == "no GPU"


def asked() -> Iterator[DesiredState]:
    """For each key that a check answers a desired state that asks for it."""
    values = {path: value for path, (value, _) in ASKED.items()}
    for section, model in (("tuning", Tuning), ("gpu", Gpu), ("rdma", Rdma), ("system", System)):
        for name, described in keys_of(model).items():
            values.setdefault(f"{section}.{name}", described.example)
    answered = {key for keys in checks.answers().values() for key in keys}
    for path, value in values.items():
        if any(f"{path}.".startswith(f"{key}.") for key in answered):
            yield asking(path, value)


def test_the_oldest_python_of_a_node_finds_the_same(tmp_path: Path) -> None:
    """3.8 where this machine has it; its own otherwise."""
    found = [str(path) for path in machine_home().glob(".pyenv/versions/3.8.*/bin/python3")]
    node = OnTheNode(tmp_path, (found or [PYTHON])[0])
    for state in STATES.values():
        same(node, DESIRED["with everything"], state)
    node.close()


def test_every_check_has_its_turn(node: OnTheNode) -> None:
    """None is left out of the program, and none needs what a node has not, whatever is asked of it."""
    told: dict[str, Any] = {}
    for wanted in [*asked(), *DESIRED.values()]:
        for state in (*(ANSWERS[name] for name in ("bare", "unreadable")), *STATES.values()):
            told |= {each[2]["name"]: each[2] for each in same(node, wanted, state)}
    began = {name for name in checks.checks() if any(each == name or each.startswith(f"{name}.") for each in told)}
    assert node.names == list(checks.checks())
    assert {name.partition(".")[0] for _, names in ASKED.values() for name in names} - began == {"fleet"}
    assert not [each for each in told.values() if "itself failed" in each["evidence"]]


def _below(part: Any, key: Any) -> Any:
    return part[key] if isinstance(part, dict | list) else getattr(part, key)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_a_node_is_like_the_findings_are_the_controller_s(node: OnTheNode, data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(sorted(STATES)))
    document = json.loads(STATES[base].model_dump_json())
    changed = 0
    for path in data.draw(st.lists(st.sampled_from(PLACES[base]), min_size=1, max_size=12)):
        value = data.draw(st.sampled_from(REASONS + VALUES))
        before = json.loads(json.dumps(document))
        at: Any = document
        try:
            for part in path[:-1]:
                at = at[part]
            at[path[-1]] = value
            reading = functools.reduce(_below, path, NodeState.model_validate(document, strict=False))
            if value in REASONS and not is_unreadable(reading):  # there it is a dictionary that no probe makes
                raise ValueError
            changed += 1
        except (LookupError, TypeError, ValueError):  # no such place any more, or no state
            document = before
    state = NodeState.model_validate(document, strict=False)
    same(node, DESIRED[data.draw(st.sampled_from(sorted(DESIRED)))], state)
