"""All nodes together: who is unreached, who is the odd one out, who may train."""

from __future__ import annotations

from shakedown.examination import Examination, Reading
from shakedown.findings import Verdict
from shakedown.state import NodeState
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
    assert not any(examination.mendable(node) for node in examination.desired)


def test_an_unreached_node_is_a_failed_finding_with_the_reason() -> None:
    examination = examined({}, None, {})
    (finding,) = examination.findings["n2"]
    assert (finding.name, finding.verdict, finding.actual) == ("reachable", Verdict.FAIL, "timed out")
    assert examination.verdict() == Verdict.FAIL
    assert list(examination.states) == ["n1", "n3"]


def test_a_minority_is_named_and_the_majority_is_not() -> None:
    examination = examined({}, {"system.kernel": "5.4.0-other"}, {})
    odd = [finding for finding in examination.all_findings() if finding.verdict != Verdict.OK]
    assert [finding.node for finding in odd] == ["n2"]
    assert "5.4.0-other" in str(odd[0].actual)


def test_drift_has_remedies_and_does_not_block_but_failure_does() -> None:
    examination = examined({"numa.balancing.running": "1"}, {"rdma.3.state": "DOWN"})
    assert examination.blockers("n1") == []
    assert [finding.name.split(".")[0] for finding in examination.blockers("n2")] == ["rdma_state"]
    assert [finding.name for finding in examination.mendable("n1")] == ["numa_balancing"]
    assert examination.mendable("n2") == []


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
