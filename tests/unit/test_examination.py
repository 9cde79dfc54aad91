"""All nodes together: who is unreached, who is the odd one out, who may train."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from shakedown.checks.examination import Examination, Reading, unreached
from shakedown.state.findings import Finding, Remedy, Verdict, worst
from shakedown.state.node import NodeState
from tests.states import desired, healthy, with_


def examined(*changes: dict[str, object] | None) -> Examination:
    """Nodes n1, n2, ... with these changes to a healthy state; None: a node that gave none."""
    names = [f"n{number}" for number in range(1, len(changes) + 1)]
    wanted = desired()
    examination = Examination(dict.fromkeys(names, wanted), dict.fromkeys(names, "rack"))
    for number, (name, change) in enumerate(zip(names, changes, strict=True), start=1):
        state = None if change is None else with_(healthy(number), change)
        examination.readings[name] = Reading(state, "" if state else "timed out")
    examination.judge()
    return examination


def test_healthy_nodes_have_no_blockers_and_nothing_to_mend() -> None:
    examination = examined({}, {}, {})
    assert examination.verdict() == Verdict.OK
    assert not any(examination.fixable(node) for node in examination.desired)


def test_an_unreached_node_is_a_failed_finding_with_the_reason() -> None:
    examination = examined({}, None, {})
    (finding,) = examination.findings["n2"]
    assert (finding.name, finding.verdict, finding.actual) == ("reachable", Verdict.FAIL, "timed out")
    assert examination.verdict() == Verdict.FAIL
    assert list(examination.states) == ["n1", "n3"]
    remedies = [str(unreached("n2", *why).remedy) for why in (("", "connection"), ("x", "connection"), ("", "n2:22"))]
    assert ["console" in text for text in remedies] == [True, False, False]
    assert "log in to n2 by hand" in remedies[2]


def test_nodes_answer_with_their_state_or_with_findings_of_their_own() -> None:
    assert [examined({}, None, {}).answered, examined(None).answered, examined({}).answered] == [2, 0, 1]
    of_agents = Examination(dict.fromkeys(("n1", "n2"), desired()))
    of_agents.findings = {"n1": [], "n2": [unreached("n2", "timed out", "ssh to n2")]}
    assert of_agents.answered == 1


def test_a_node_that_is_reached_otherwise_than_over_ssh_is_not_to_be_logged_in_to() -> None:
    over_ssh, otherwise = unreached("n2", "timed out", "ssh to n2, port 22"), unreached("n2", "no node", "connection")
    assert "over SSH" in str(over_ssh.wanted) and "log in to n2" in str(over_ssh.remedy)
    assert "SSH" not in str(otherwise.wanted) and "log in" not in str(otherwise.remedy)


def test_a_minority_is_named_and_the_majority_is_not() -> None:
    examination = examined({}, {"system.kernel": "5.4.0-other"}, {})
    odd = [finding for finding in examination.all_findings() if finding.verdict != Verdict.OK]
    assert [finding.node for finding in odd] == ["n2"]
    assert "5.4.0-other" in str(odd[0].actual)


def test_drift_has_remedies_and_does_not_block_but_failure_does() -> None:
    examination = examined({"numa.balancing.running": "1"}, {"rdma.3.state": "DOWN"})
    assert examination.blockers("n1") == []
    assert [finding.name.split(".")[0] for finding in examination.blockers("n2")] == ["rdma_state"]
    assert [finding.name for finding in examination.fixable("n1")] == ["numa_balancing"]
    assert examination.fixable("n2") == []


def test_a_home_that_no_path_can_have_is_no_answer_and_ends_nothing() -> None:
    system = desired().system.model_copy(update={"disk_free": {"{home}": 2**20}})
    wanted = desired().model_copy(update={"system": system})
    examination = Examination({"n1": wanted, "n2": wanted})
    for node, home in (("n1", "nowhere\n\x1b[2J"), ("n2", "/root")):
        examination.keep(node, Reading(with_(healthy(), {"account.home": home})))
    examination.judge()
    (finding,) = examination.findings["n1"]
    assert (finding.name, finding.verdict) == ("reachable", Verdict.FAIL)
    assert "'nowhere" in finding.actual and "system.disk_free" in finding.actual and "\x1b" not in finding.actual
    assert "disk_free./root" in {finding.name for finding in examination.findings["n2"]}


@pytest.mark.parametrize(
    ("place", "value"),
    [("interfaces.0.ipv4", ["fe80::1/64"]), ("interfaces.0.ipv4", ["10.0.0.1/99"]), ("routes.0.destination", "x/8")],
)
def test_an_address_that_is_none_is_refused_with_its_place(place: str, value: object) -> None:
    with pytest.raises(ValidationError, match=place.rpartition(".")[2]):
        with_(healthy(), {place: value})


def test_of_no_nodes_at_all_nothing_is_known() -> None:
    assert Examination({}).verdict() == Verdict.UNKNOWN


def test_states_that_cannot_be_compared_are_unknown_and_end_nothing() -> None:
    """Whatever a state holds that no check was written for."""
    weird = NodeState.model_construct()
    examination = Examination({"a": desired(), "b": desired()}, {}, {"a": Reading(weird), "b": Reading(healthy())})
    examination.judge()
    assert all(finding.verdict == Verdict.UNKNOWN for finding in examination.findings["a"])
    (fleet,) = [finding for finding in examination.findings["b"] if finding.name == "fleet"]
    assert fleet.verdict == Verdict.UNKNOWN
    assert "AttributeError" in fleet.evidence


def test_a_warning_counts_for_nothing_but_itself() -> None:
    wanted = desired(smoke={"recipe": "gpt-small", "environment": {"HSA_ENABLE_SDMA": "0"}})
    examination = Examination({"a": wanted})
    examination.keep("a", Reading(healthy()))
    examination.judge()
    assert examination.warnings() == {"a": ["environment.HSA_ENABLE_SDMA"]}
    assert examination.verdict() == examination.verdict_of("a") == Verdict.OK
    assert not examination.blockers("a") and not examination.fixable("a")


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        (["ok", "warn"], "ok"),
        (["warn"], "ok"),
        (["warn", "drift"], "drift"),
        (["warn", "unknown"], "unknown"),
        (["fail", "warn"], "fail"),
        ([], "unknown"),
    ],
)
def test_the_worst_is_never_a_warning(verdicts: list[str], overall: str) -> None:
    found = worst([Verdict(verdict) for verdict in verdicts])
    assert Verdict.WARN.exit_code == 0
    assert found == overall and found.exit_code == {"ok": 0, "drift": 3, "unknown": 4, "fail": 1}[overall]


def test_what_an_operation_mends_is_no_advice() -> None:
    with pytest.raises(ValueError, match="advice names no operation"):
        Finding(name="x", node="n", verdict=Verdict.WARN, remedy=Remedy(text="fix", operation="tuning.sysctl"))
