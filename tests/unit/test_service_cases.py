"""What the service decides from a node's history: tests/data/cases/service.jsonl."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from shakedown.desired.models import Bmc, Service
from shakedown.service import decide
from shakedown.service.decide import Facts, Limits
from shakedown.service.marks import marks, unmanaged_reason
from shakedown.service.model import Done, Incident, Known, PassedLoad, Step, history
from tests.cases import cases, wrong
from tests.views import Scheduled

CASES = cases("service")


@pytest.mark.parametrize("call", CASES)
def test_a_node_s_history_decides(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(CASES[call], monkeypatch) is None


def event(kind: str, at: int, more: str = "", outcome: str = "", **rest: Any) -> Incident | PassedLoad | Step:
    """One event of node `a`: an incident ("trial x"), a passed load ("load smoke"), or a step ("begun", "reboot")."""
    if kind in get_args(Done):
        return Step(node="a", at=at, done=kind, rung=more, outcome=outcome, **rest)  # type: ignore[arg-type]
    source, _, name = kind.partition(" ")
    if kind.startswith("load "):
        return PassedLoad(node="a", load=name, others=int(more or 0), at=at, run_id="r")
    return Incident(node="a", source=source, name=name, what="w", at=at, drift=more == "drift", drains=True)  # type: ignore[arg-type]


def known(*events: Incident | PassedLoad | Step) -> Known:
    return Known(
        incidents=tuple(one for one in events if isinstance(one, Incident)),
        passed_loads=tuple(one for one in events if isinstance(one, PassedLoad)),
        steps=tuple(one for one in events if isinstance(one, Step)),
    )


@pytest.mark.parametrize(
    ("step", "still_open"),
    [
        (event("begun", 3, "reboot"), True),
        (event("taken back", 3), True),
        (event("ended", 3, "reboot", "done"), False),
        (event("begun", 3, "load"), False),
        (event("handed over", 3), False),
        (event("drained", 3), False),
    ],
)
def test_a_repair_and_a_person_reset_what_the_node_has_passed(step: Step, still_open: bool) -> None:
    """The node has trained with others before, and passes the trial alone after."""
    past = known(event("trial gemm", 1), event("load smoke", 2, "1"), step, event("load gemm", 4))
    assert bool(history(past).open) == still_open


def node(drained: bool = False, down: bool = False, reason: str = "") -> Any:
    return Scheduled("a", reason, drained, down)


OURS = "shakedown:r x"
DRAINED = event("drained", 10, why=OURS)


@pytest.mark.parametrize(
    ("scheduled", "reason"),
    [
        (node(), ""),
        (node(drained=True, reason=OURS), ""),
        (node(drained=True, reason="bob"), "IDLE: bob"),
        (node(down=True, reason="bob"), "IDLE: bob"),
        (node(drained=True, down=True, reason="bob"), "IDLE: bob"),
        (node(down=True, reason=OURS), f"IDLE: {OURS}"),
    ],
)
def test_another_user_s_drain_is_known_by_its_reason(scheduled: Any, reason: str) -> None:
    assert unmanaged_reason(scheduled, known(DRAINED).steps) == reason


@pytest.mark.parametrize(
    ("events", "alone", "what"),
    [
        ((event("load smoke", 11, "1"),), False, "a: resume in the scheduler: cleared by smoke with 1 other in r"),
        ((event("load smoke", 10, "1"),), False, "the load that cleared the node is older than the drain"),
        ((event("load smoke", 11),), True, "no later run has cleared the node under load together with other nodes"),
    ],
)
def test_a_node_is_resumed_by_a_load_with_others_after_its_drain(
    events: tuple[PassedLoad, ...], alone: bool, what: str
) -> None:
    past = known(event("gate x", 9), DRAINED, *events)
    found = marks({"a": history(past, alone)}, {"a": past}, {"a": node(True, reason=OURS)}, {"a": "a"}, Limits())
    assert [str(mark) for mark in found] == [
        what if what.startswith("a: ") else f"a: left as it is in the scheduler: {what}"
    ]


def test_a_drain_that_no_incident_explains_stays() -> None:
    past = known(DRAINED)
    found = marks({"a": history(past)}, {"a": past}, {"a": node(True, reason=OURS)}, {"a": "a"}, Limits())
    assert [mark.what for mark in found] == ["leave"]


@pytest.mark.parametrize(("at_once", "drains"), [(1, 1), (2, 2), (3, 3)])
def test_a_node_that_is_resumed_makes_room_for_another(at_once: int, drains: int) -> None:
    free = known(event("gate x", 9), DRAINED, event("load smoke", 11, "1"))
    bad = known(event("gate x", 9))
    past = {"a": free, "b": bad, "c": bad, "d": bad}
    nodes: Any = {"a": node(True, reason=OURS)} | {name: Scheduled(name) for name in "bcd"}
    names = {name: name for name in past}
    found = marks({name: history(one) for name, one in past.items()}, past, nodes, names, Limits(at_once))
    assert [mark.what for mark in found] == ["resume"] + ["drain"] * drains + ["leave"] * (3 - drains)


def test_an_attempt_of_exactly_a_day_ago_counts() -> None:
    failed = known(event("ended", 1000, "reboot", "failed"))
    day = decide.WINDOW_S
    counts = [bool(decide.too_many_failed({"a": failed}, 1000 + day + more, 0)) for more in (0, 1)]
    assert counts == [True, False]


@pytest.mark.parametrize(
    ("incidents", "repairs"),
    [
        ([event("finding x", 1)], ["mend", "reboot"]),
        ([event("finding gpu_ecc", 1)], ["reboot"]),
        ([event("finding gpu_ecc", 1), event("finding x", 1)], ["reboot"]),
        ([event("finding gpu_ecc", 1), event("finding x", 1, "drift")], ["mend", "reboot"]),
        ([event("finding gpu_ecc", 1, "drift")], ["reboot"]),
        ([event("diagnosis x", 1), event("finding x", 1, "drift")], ["mend", "reboot", "power cycle"]),
    ],
)
def test_operations_come_first_where_any_incident_is_drift(incidents: list[Incident], repairs: list[str]) -> None:
    assert [budget.repair for budget in decide._budgets(incidents)] == repairs


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ([], 0),
        ([("begun", "load"), ("ended", "load")], 1),
        ([("begun", "load"), ("ended", "load"), ("drained", ""), ("begun", "load")], 2),
        ([("begun", "load"), ("begun", "reboot"), ("ended", "reboot"), ("begun", "load")], 1),
        ([("begun", "load"), ("taken back", ""), ("begun", "load"), ("begun", "load")], 2),
        ([("begun", "load"), ("handed over", ""), ("begun", "load")], 2),
        ([("begun", "reboot")], 0),
    ],
)
def test_loads_in_a_row_end_at_a_repair_and_at_a_person(steps: list[tuple[str, str]], count: int) -> None:
    assert decide._loads_in_a_row([event(done, at, rung) for at, (done, rung) in enumerate(steps)]) == count  # type: ignore[misc]


ANY = Service(rungs=["mend", "reload driver", "reboot", "power cycle"], bmc=Bmc(command=["power"]))


def proposed(past: Known, now: int, allowed: Service = ANY, **facts: Any) -> str:
    found = decide.next_proposal("a", history(past), past, Facts(**facts), allowed, now)
    return " ".join(filter(None, (found.kind, found.repair, str(found.until or ""))))


def load(at: int) -> list[Step]:
    return [event("begun", at, "load"), event("ended", at + 1, "load", "done")]  # type: ignore[list-item]


def test_a_second_load_without_a_result_is_the_last() -> None:
    past = known(event("gate x", 1), *load(2))
    assert proposed(past, 9) == "load load"
    assert proposed(known(event("gate x", 1), *load(2), *load(4)), 9) == "hand over"


def test_a_load_that_shows_the_fault_is_believed_although_a_check_does_not_find_it() -> None:
    first = event("finding x", 1, "drift")
    other = known(event("finding y", 1), *load(2))
    assert proposed(other, 9, found=frozenset()) == "load load"
    for at, wanted in ((2, "repair reboot"), (3, "repair reboot")):  # in the same second, and later
        again = known(event("finding y", 1), *load(2), event("finding y", at))
        assert proposed(again, 9, found=frozenset(), reached=True) == wanted
    mixed = known(first, event("finding y", 1), *load(2), event("finding x", 5, "drift"))
    assert proposed(mixed, 9, found=frozenset()) == "repair mend"


@pytest.mark.parametrize(("later", "left"), [(0, False), (1, True)])
def test_an_attempt_counts_for_its_window_and_not_a_second_longer(later: int, left: bool) -> None:
    past = known(event("finding gpu_ecc", 1), event("begun", 2, "reboot"), event("ended", 3, "reboot", "failed"))
    assert proposed(past, 2 + 168 * 3600 + later) == ("repair reboot" if left else "hand over")


def test_a_power_cycle_waits_from_the_incident_or_the_last_repair() -> None:
    only = Service(rungs=["power cycle"], bmc=ANY.bmc)
    past = known(event("diagnosis unreachable", 1000))
    assert [proposed(past, at, only) for at in (1000, 1119, 1120)] == [
        "wait power cycle 1120", "wait power cycle 1120", "repair power cycle",
    ]  # fmt: skip
    drained = known(*past.incidents, event("drained", 1050, why=OURS), event("handed over", 900, "reboot"))
    assert proposed(drained, 1100, only) == "wait power cycle 1120"
    rebooted = known(*past.incidents, event("begun", 1050, "reboot"), event("ended", 1060, "reboot", "failed"))
    assert [proposed(rebooted, at, only) for at in (1179, 1180)] == ["wait power cycle 1180", "repair power cycle"]
    loaded = known(*past.incidents, *load(1050), event("diagnosis unreachable", 1055))
    assert proposed(loaded, 1174, only) == "wait power cycle 1175"
