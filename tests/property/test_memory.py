"""What is remembered of nodes that are equal in what a check reads: the findings are those of checks that remember
nothing, byte for byte."""

from __future__ import annotations

import functools
import json
import operator
import random
from collections.abc import Callable
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from shakedown import checks
from shakedown.checks import fleet
from shakedown.checks.examination import Examination, Reading
from shakedown.desired.resolve import at_home
from shakedown.state.findings import Finding
from shakedown.state.memory import Memory
from shakedown.state.node import Gpu, NodeState, RdmaDevice, Setting, Unreadable, is_unreadable
from tests.property.test_agent_checks import DESIRED, PLACES, REASONS, STATES, VALUES
from tests.states import DELETED, desired, healthy, unreadable, with_

Check = Callable[[Any, NodeState], Any]


def mutated(dice: random.Random) -> NodeState:
    """One of the states with some of its values changed, where that is a state."""
    base = dice.choice(sorted(STATES))
    state, document = STATES[base], json.loads(STATES[base].model_dump_json())
    for path in dice.choices(PLACES[base], k=dice.choice((0, 1, 1, 3))):
        changed = json.loads(json.dumps(document))
        try:
            functools.reduce(operator.getitem, path[:-1], changed)[path[-1]] = dice.choice(
                [*REASONS, *VALUES, -0.0, 1.0]
            )
            state, document = NodeState.model_validate(changed, strict=False), changed
        except (LookupError, TypeError, ValueError):
            continue
    return state


def in_bytes(findings: list[Finding]) -> list[str]:
    return [finding.model_dump_json() for finding in findings]


@pytest.mark.parametrize("wanted", DESIRED)
def test_the_findings_are_those_of_checks_that_remember_nothing(wanted: str) -> None:
    dice = random.Random(wanted)
    names = [f"node{number:02d}" for number in range(1, 41)]
    examination = Examination(dict.fromkeys(names, DESIRED[wanted]))
    for node in names * 2:  # the second time many are as before
        state = mutated(dice)
        examination.keep(node, Reading(state))
        examination.judge_alone(node)
        alone = checks.evaluate(at_home(DESIRED[wanted], state.account.home), state, node)
        assert in_bytes(examination.findings[node]) == in_bytes(alone)
    found = sum(known.found for known in examination._memory._known.values())
    assert found > 300, "next to nothing was remembered"


@pytest.mark.parametrize("wanted", DESIRED)
def test_nodes_are_compared_as_without_a_memory(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(wanted)
    states = {f"node{number:02d}": mutated(dice) for number in range(1, 41)}
    found = in_bytes(fleet.outliers(states, {}, dict.fromkeys(states, DESIRED[wanted])))
    monkeypatch.setattr(Memory, "ask", lambda _, function, desired, state: function(desired, state))
    assert found == in_bytes(fleet.outliers(states, {}, dict.fromkeys(states, DESIRED[wanted])))


def test_nodes_that_agree_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {f"node{number:02d}": healthy(number) for number in range(1, 41)}
    called: list[Any] = []

    def lossless(devices: Any) -> dict[str, str]:
        called.append(devices)
        return {}

    monkeypatch.setattr(fleet, "_lossless", lossless)
    values = fleet.comparable(states, dict.fromkeys(states, desired()))
    assert len({id(of_node) for of_node in values.values()}) == 1 and len(called) == 2  # the second: what it reads


def whole_model(desired: Any, state: NodeState) -> Any:
    return state.boot_unit.model_dump_json()


def whole_dict(desired: Any, state: NodeState) -> Any:
    return list(state.gpus[1].__dict__) and str(state.gpus[1].__dict__["power_cap"])  # type: ignore[index]


def by_name(desired: Any, state: NodeState) -> Any:
    return [str(getattr(state, name)) for name in ("sys" + "tem", "gp" + "us")]


def equal(desired: Any, state: NodeState) -> Any:
    return state.gpus[0] == state.gpus[1], state.cpu == healthy().cpu  # type: ignore[index]


def counted(desired: Any, state: NodeState) -> Any:
    return len(state.interfaces), len(state.sysctl), "kernel.panic" in state.sysctl  # type: ignore[arg-type]


def hashed(desired: Any, state: NodeState) -> Any:
    return len({gpu.link for gpu in state.gpus})  # type: ignore[union-attr]


def formatted(desired: Any, state: NodeState) -> Any:
    return f"{state.rocm_version} {state.drives} {state.devices.kfd}"


def kinds(desired: Any, state: NodeState) -> Any:
    return [is_unreadable(gpu.ecc_blocks) for gpu in state.gpus], state.rdma.__class__.__name__  # type: ignore[union-attr]


def of_type(desired: Any, state: NodeState) -> Any:
    return repr(state.rdma[2].rate_gbps)  # type: ignore[index]


def itself(desired: Any, state: NodeState) -> Any:
    return desired


def branch(desired: Any, state: NodeState) -> Any:
    if state.numa.balancing.running == "0":
        return "0"
    return state.sysctl["net.ipv4.conf.all.rp_filter"].running


def by_type(desired: Any, state: NodeState) -> Any:
    return state.boot_unit.enabled if type(state.boot_unit) is type(healthy().boot_unit) else state.system.hostname


def by_order(desired: Any, state: NodeState) -> Any:
    numbers = state.sysctl["kernel.panic"]
    if state.numa.balancing.running == "0":
        return numbers.running, numbers.persisted
    later = numbers.persisted
    return numbers.running, later


CHANGES: list[dict[Any, Any]] = [
    {},
    {"numa.balancing.running": "1"},
    {"numa.balancing.running": "1", ("sysctl", "net.ipv4.conf.all.rp_filter", "running"): "1"},
    {("sysctl", "kernel.panic"): {"running": "0", "persisted": None}},
    {
        ("sysctl", "net.ipv4.conf.all.rp_filter"): DELETED,
        ("sysctl", "kernel.panic"): {"running": "2", "persisted": "2"},
    },
    {("sysctl", "kernel.panic"): {"running": "2", "persisted": "3"}, "numa.balancing.running": "1"},
    {("sysctl", "kernel.panic"): {"running": "3", "persisted": "2"}, "numa.balancing.running": "1"},
    {"boot_unit.enabled": False},
    {"gpus.0.bdf": "0000:ff:00.0"},
    {"gpus.1.power_cap": unreadable("timed out")},
    {"gpus.1.link.width": 8},
    {"system.hostname": "other"},
    {"cpu.governors": {"powersave": 192}},
    {"interfaces": []},
    {"interfaces": unreadable("missing")},
    {"rdma": unreadable("missing")},
    {"rdma.2.rate_gbps": 0.0},
    {"rdma.2.rate_gbps": -0.0},
    {"rocm_version": unreadable("missing", "no file")},
    {"drives": []},
    {"devices.kfd": unreadable("missing", "/dev/kfd")},
    {"gpus": []},
]


def answer(function: Check, state: NodeState, ask: Callable[..., Any]) -> Any:
    try:
        return ask(function, None, state)
    except (LookupError, TypeError) as error:
        return str(error)


@pytest.mark.parametrize(
    "function",
    [
        whole_model,
        whole_dict,
        by_name,
        equal,
        counted,
        hashed,
        formatted,
        kinds,
        of_type,
        branch,
        by_type,
        by_order,
    ],
    ids=lambda function: function.__name__,
)
def test_however_a_function_reads_a_state_it_is_seen(function: Check) -> None:
    states = [with_(healthy(), changes) for changes in CHANGES]
    wanted = [answer(function, state, lambda function, *given: function(*given)) for state in states]
    assert len(set(map(str, wanted))) > 1, "no change is seen"
    for order in range(len(states)):
        memory = Memory()
        for place in [*range(order, len(states)), *range(order)] * 2:
            assert answer(function, states[place], memory.ask) == wanted[place], CHANGES[place]


def test_a_function_that_reads_what_each_node_has_of_its_own_is_asked_of_each() -> None:
    memory, asked = Memory(), []

    def name(desired: Any, state: NodeState) -> str:
        asked.append(state)
        return state.system.hostname

    states = [healthy(number) for number in range(1, 61)]
    assert [memory.ask(name, None, state) for state in states] == [state.system.hostname for state in states]
    (known,) = memory._known.values()
    assert not known.ways, "it is looked up although it never was found"
    assert len(asked) < 90, "it is asked twice for ever"


def test_a_desired_state_of_its_own_has_results_of_its_own() -> None:
    memory, one, other = Memory(), [1], [2]
    for wanted in (one, other, one):
        assert memory.ask(itself, wanted, healthy()) is wanted


def test_nodes_with_cables_of_their_own_share_what_other_checks_find() -> None:
    names = [f"n{number}" for number in range(1, 21)]
    plan = {name: {"rdma0": [f"leaf{name}", "1"]} for name in names[:-1]}
    wanted = desired(rdma={"cabling": plan})
    examination = Examination(dict.fromkeys(names, wanted))
    for number, node in enumerate(names, 1):
        end = dict.fromkeys(("chassis", "port", "port_description"), "1")
        seen = [{"interface": healthy().rdma[0].netdev, "system": f"leaf{node}", **end}] if number % 2 else []  # type: ignore[index]
        examination.keep(node, Reading(with_(healthy(number), {"neighbours": seen})))
        examination.judge_alone(node)
        alone = checks.evaluate(examination.desired[node], examination.states[node], node)
        assert in_bytes(examination.findings[node]) == in_bytes(alone)
    cables = {finding.evidence for finding in examination.all_findings() if finding.name == "cabling"}
    assert len(cables) > 10, "all have the same cables"
    assert sum(known.found for known in examination._memory._known.values()) > 250


@pytest.mark.parametrize("differs", [None, "waivers", "tuning"])
def test_nodes_share_findings_where_no_check_reads_what_differs(differs: str | None) -> None:
    """As hosts from Slurm do, which have their names there as layers of their own."""
    names = [f"n{number}" for number in range(1, 21)]
    waiver = {"finding": "memlock", "reason": "r", "owner": "o", "until": "2999-12-31"}
    site: dict[str, Any] = {"waivers": {f"w{name}": {**waiver, "hosts": [name]} for name in names}} if differs else {}
    own = {name: desired(slurm={"node": name}, **(site if differs == "waivers" else {})) for name in names}
    if differs == "tuning":
        own = {name: desired(tuning={"nofile": 1000 + number}) for number, name in enumerate(names)}
    examination = Examination(own)
    for number, node in enumerate(names, 1):
        examination.keep(node, Reading(with_(healthy(number), {"limits.memlock.running": "64"})))
        examination.judge_alone(node)
        alone = checks.evaluate(own[node], examination.states[node], node)
        assert in_bytes(examination.findings[node]) == in_bytes(alone)
    waived = {finding.waiver for finding in examination.all_findings()} - {None}
    assert len(waived) == (len(names) if differs == "waivers" else 0)
    given = int(differs == "waivers")  # of all nodes, before each has its own
    assert len(examination._shared) == given + (len(names) if differs else 1)


def test_a_field_stands_for_its_model() -> None:
    """A dotted path tells of which kind the models on it are: no reading is one of two kinds, and no other model has
    the fields of Unreadable."""
    models: set[type[BaseModel]] = set()
    todo: list[type[BaseModel]] = [NodeState]
    while todo:
        model = todo.pop()
        models.add(model)
        for field in model.model_fields.values():
            found, parts = [], [field.annotation]
            while parts:
                part: Any = parts.pop()
                if isinstance(part, type) and issubclass(part, BaseModel):
                    found.append(part)
                parts += [*get_args(part), *([part.__value__] if hasattr(part, "__value__") else [])]
            assert len(set(found) - {Unreadable}) <= 1, field
            todo += [part for part in found if part not in models]
    assert {Gpu, RdmaDevice, Setting, Unreadable} <= models
    assert all(not set(model.model_fields) & set(Unreadable.model_fields) for model in models - {Unreadable})
