"""Repairs and service status: incidents, what clears a node, what is tried next, and what never happens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from fnmatch import filter as matching
from typing import Any

import pytest

from shakedown.catalogue import entries
from shakedown.desired.models import Bmc, Service
from shakedown.evidence.diagnosis.model import Diagnosis, Sign
from shakedown.evidence.diagnosis.signs import proofs
from shakedown.gates import Gate
from shakedown.runs.directory import JobRecord, RunNode, RunRecord
from shakedown.runs.isolation import Group, Isolation, Problem, Result, Suspect, Training
from shakedown.schedulers.slurm.nodes import Node, from_text
from shakedown.service import decide
from shakedown.service.decide import LOADS, Facts, Limits, Proposal, next_proposal, proposals
from shakedown.service.evidence import incidents, passed_loads
from shakedown.service.marks import PARTNER, Board, _next, drain_reason, marks, names_in, shown, step_line
from shakedown.service.model import REPAIRS, Incident, Known, PassedLoad, Step, escalation, history
from shakedown.service.power import PowerError, command_for, cycle
from shakedown.state.findings import Finding, Verdict
from shakedown.trials.models import AGAIN, PAIRS, Judged, Matrix, Named, TrialsRecord
from shakedown.trials.workload.registry import trials
from tests.plans import small
from tests.reports import HOSTILE

NODES = ("node1", "node2", "node3")


def a_record(**more: Any) -> RunRecord:
    """A run of three nodes that trained together and passed."""
    plan = small()
    nodes = [plan.nodes[0].model_copy(update={"name": name}) for name in NODES]
    values: dict[str, Any] = {
        "run_id": "20261123T080000-aaaaaa",
        "started_at": "2026-11-23T08:00:00+00:00",
        "finished_at": "2026-11-23T08:30:00+00:00",
        "inventory": "rack.py",
        "desired_digest": "0" * 64,
        "nodes": [RunNode(name=name, verdict=Verdict.OK, part="trained") for name in NODES],
        "gates": [Gate(name="loss", verdict=Verdict.OK)],
        "jobs": [JobRecord(plan=plan.model_copy(update={"nodes": nodes}))],
    }
    return RunRecord(**values).model_copy(update=more)


FAILED = [Gate(name="ran_to_its_end", verdict=Verdict.FAIL)]


def a_sign(node: str, **more: Any) -> Sign:
    return Sign(node=node, name="gpu_hang", role="origin", text="hang").model_copy(update=more)


def a_diagnosis(origin: tuple[str, ...], *signs: Sign, confidence: str = "certain") -> Diagnosis:
    return Diagnosis(
        name="gpu_hang", cause="a GPU hung", remedy="", confidence=confidence, origin=origin, why="only", evidence=signs
    )  # fmt: skip


def said(record: RunRecord) -> list[tuple[str, str, str, bool]]:
    return [(each.node, each.source, each.name, each.drains) for each in incidents(record)]


def test_who_merely_took_part_in_a_run_that_failed_is_not_named() -> None:
    assert said(a_record(gates=FAILED)) == []
    assert passed_loads(a_record(gates=FAILED)) == []
    assert [(each.node, each.load, each.others) for each in passed_loads(a_record())] == [
        (n, "smoke", 2) for n in NODES
    ]
    assert passed_loads(a_record(finished_at=None)) == []


def test_a_diagnosis_names_who_showed_the_failure_and_nobody_by_hearsay() -> None:
    sure = a_diagnosis(("node2",), a_sign("node2"), a_sign("node1", role="echo", blames=("node2",)))
    assert said(a_record(gates=FAILED, diagnosis=sure)) == [("node2", "diagnosis", "gpu_hang", True)]
    by_others = a_diagnosis(("node2",), a_sign("node1", role="echo", blames=("node2",)))
    for diagnosis in (by_others, a_diagnosis(("node2",), a_sign("node2"), confidence="likely")):
        assert said(a_record(gates=FAILED, diagnosis=diagnosis)) == []
    for hearsay in ({"role": "echo"}, {"blames": ("node1",)}, {"name": "hang"}):
        assert said(a_record(gates=FAILED, diagnosis=a_diagnosis(("node2",), a_sign("node2", **hearsay)))) == []
    busy = a_diagnosis(("node2",), a_sign("node2", name="busy")).model_copy(update={"name": "busy"})
    assert said(a_record(gates=FAILED, diagnosis=busy)) == [], "somebody else's run is no fault of the node"


def test_a_search_a_trial_and_findings_name_and_a_link_drains_nobody() -> None:
    suspects = [
        Suspect(kind="node", nodes=("node1",), trainings=("1.1",), probability=0.99),
        Suspect(kind="link", nodes=("node2", "node3"), trainings=("1.2",), probability=0.9),
    ]
    two = Result(suspects=suspects, conclusion="two")
    search = Isolation(problem=Problem(nodes=list(NODES)), result=two)
    assert said(a_record(isolation=search)) == [
        ("node1", "isolation", "search", True),
        ("node2", "isolation", "link", False),
        ("node3", "isolation", "link", False),
    ]
    shared = Isolation(problem=Problem(nodes=list(NODES)), result=two.model_copy(update={"systemic": True}))
    assert said(a_record(isolation=shared)) == [], "what all share is nobody's fault"
    gate = Gate(name="gemm", verdict=Verdict.FAIL, node="node3", job="trials", evidence="gpu3: 0.5 of its peers")
    assert said(a_record(gates=[gate])) == [("node3", "trial", "gemm", True)]
    assert said(a_record(gates=[gate.model_copy(update={"verdict": Verdict.UNKNOWN})])) == []
    own = gate.model_copy(update={"name": "loss", "job": "node3"})
    assert said(a_record(gates=[own])) == [("node3", "gate", "loss", False)], "of a job that it had for itself"
    for ended_by, its in (("interrupted", []), ("busy", []), ("exit", [("node3", "gate", "loss", False)])):
        job = JobRecord(node="node3", ended_by=ended_by)
        gates = [own.model_copy(update={"job": job.name})]
        assert said(a_record(gates=gates, jobs=[job])) == its, "what somebody stopped says nothing of the node"
    found = [
        Finding(name="gpu_count", node="node1", verdict=Verdict.FAIL, wanted=8, actual=7),
        Finding(name="thp", node="node1", verdict=Verdict.DRIFT, wanted="never", actual="always"),
        Finding(name="gpu_idle", node="node1", verdict=Verdict.FAIL, wanted="no process", actual="python"),
        Finding(name="fleet.bios", node="node2", verdict=Verdict.FAIL, wanted="1", actual="2"),
        Finding(name="mtu.ens1", node="node3", verdict=Verdict.UNKNOWN),
        Finding(name="elsewhere", node="node9", verdict=Verdict.FAIL),
    ]
    assert sorted(said(a_record(findings=found))) == [
        ("node1", "finding", "gpu_count", True),
        ("node1", "finding", "thp", False),
        ("node2", "finding", "fleet.bios", False),  # others' words are in it
        ("node3", "unread", "mtu.ens1", False),
    ]
    flood = [found[1].model_copy(update={"name": f"mtu.ens{number}"}) for number in range(60)]
    told = said(a_record(findings=[*flood, found[0]]))
    assert len(told) == 50 and told[0][2] == "gpu_count", "the worst of many"


def test_what_is_passed_alone_counts_no_others_and_a_node_with_a_finding_has_passed_nothing() -> None:
    nodes = [RunNode(name=n, verdict=Verdict.DRIFT if n == "node3" else Verdict.OK, part="measured") for n in NODES]
    judged = [
        Judged(trial="gemm", figure="bf16", node=n, part="gpu0", unit="TFLOP/s", values=[1.0], median=1.0, standing=s)
        for n, s in (("node1", "ok"), ("node2", "undecided"), ("node3", "ok"))
    ]  # fmt: skip
    measured = TrialsRecord(asked=["gemm", "memory"], repetitions=1, judged=judged)
    record = a_record(nodes=nodes, trials=measured, jobs=[], gates=[])
    passed_by = [(each.node, each.load, each.others) for each in passed_loads(record)]
    assert passed_by == [("node1", "gemm", 0)], "what was asked for and gave nothing proves nothing"
    cut = measured.model_copy(update={"incomplete": {"trials": {"node1": "its log was cut"}}})
    assert passed_loads(record.model_copy(update={"trials": cut})) == []
    training = Training(group=Group(id="1.1", nodes=("node1", "node2"), purpose="groups"), outcome="pass")
    search = Isolation(
        problem=Problem(nodes=list(NODES)), rounds=[[training]], result=Result(cleared=["node1"], conclusion="one")
    )
    assert passed_loads(a_record(jobs=[], gates=[], isolation=search)) == [], "a few iterations of a search are no load"
    plan = a_record().jobs[0].plan
    assert plan is not None
    for what in ({"trials": PAIRS}, {"plan": plan.model_copy(update={"parser": "mad"})}):
        job = a_record().jobs[0].model_copy(update=what)
        no_training = a_record(jobs=[job], gates=[Gate(name="a", verdict=Verdict.OK, job=job.name)])
        assert passed_loads(no_training) == []
    its_own = a_record().jobs[0].model_copy(update={"node": "node1"})
    alone = a_record(jobs=[its_own], gates=[Gate(name="loss", verdict=Verdict.OK, node="node1", job=its_own.name)])
    assert {each.others for each in passed_loads(alone)} == {0}, "a job for itself is its own word"


def test_rounds_between_nodes_prove_who_was_in_no_slow_and_no_missing_pair() -> None:
    whole = Matrix(figure="bandwidth", unit="Gbit/s", nodes=list(NODES), cells={}, median=100.0)

    def through(matrix: Matrix = whole, **more: Any) -> list[tuple[str, int]]:
        between = TrialsRecord(asked=[PAIRS], repetitions=3, places=list(NODES), matrices=[matrix], **more)
        return [(each.node, each.others) for each in passed_loads(a_record(trials=between, jobs=[], gates=[]))]

    assert through() == [(node, 2) for node in NODES]
    for cells in ({"slow": [["node1", "node2"]]}, {"missing": [["node1", "node2"]]}):
        assert through(whole.model_copy(update=cells)) == [("node3", 2)]
    named = Named(kind="sender", what="node2", nodes=["node2"], figure="bandwidth", cells=2, of=2, evidence="slow")
    assert through(whole.model_copy(update={"named": [named]})) == [("node1", 2), ("node3", 2)]
    assert through(whole.model_copy(update={"median": None})) == [], "nothing was read"
    for kind in (PAIRS, AGAIN):
        assert through(incomplete={kind: {"node3": "its log was cut"}}) == [("node1", 2), ("node2", 2)]


def test_the_loads_of_many_jobs_are_found_in_one_pass() -> None:
    """Where each node has a job for itself: as many jobs as nodes, and the gates of all of them."""
    looks = 0

    class Counted(list[Gate]):
        def __iter__(self) -> Iterator[Gate]:
            nonlocal looks
            for gate in super().__iter__():
                looks += 1
                yield gate

    names = [f"node{number}" for number in range(200)]
    (job,) = a_record().jobs
    assert job.plan is not None
    first = job.plan.nodes[0]
    jobs = []
    for name in names:
        own = job.plan.model_copy(update={"nodes": [first.model_copy(update={"name": name})]})
        jobs.append(job.model_copy(update={"node": name, "plan": own}))
    gates = Counted(Gate(name="loss", verdict=Verdict.OK, node=job.node, job=job.name) for job in jobs)
    nodes = [RunNode(name=name, verdict=Verdict.OK, part="trained") for name in names]
    record = a_record(nodes=nodes, jobs=jobs, gates=gates)
    assert [(load.node, load.others) for load in passed_loads(record)] == [(name, 0) for name in names]
    assert looks <= 5 * len(names)


def accused(at: int = 100, node: str = "node1", **more: Any) -> Incident:
    values: dict[str, Any] = {"source": "finding", "name": "thp", "what": "always", "drift": True, "run_id": f"run{at}"}
    return Incident(node=node, at=at, **{**values, **more})


def passed(at: int, load: str = "smoke", others: int = 2, node: str = "node1") -> PassedLoad:
    return PassedLoad(node=node, load=load, others=others, at=at, run_id=f"run{at}")


def step(at: int, done: Any, rung: str = "", node: str = "node1", who: str = "root@here:1", **more: Any) -> Step:
    return Step(node=node, at=at, done=done, rung=rung, who=who, **more)


def open_of(*events: Incident | PassedLoad | Step) -> list[str]:
    return [each.name for each in history(known(*events)).incidents]


def known(*events: Incident | PassedLoad | Step) -> Known:
    return Known(
        incidents=tuple(each for each in events if isinstance(each, Incident)),
        passed_loads=tuple(each for each in events if isinstance(each, PassedLoad)),
        steps=tuple(each for each in events if isinstance(each, Step)),
    )


def test_only_a_later_load_with_other_nodes_clears() -> None:
    assert open_of(accused(100), passed(200)) == []
    assert open_of(accused(100), passed(100)) == ["thp"], "of the same second nobody knows the order"
    assert open_of(accused(200), passed(100)) == ["thp"]
    assert open_of(accused(100), passed(200, others=0)) == ["thp"], "there is only its own word for it"
    assert history(known(accused(100), passed(200, others=0)), alone=True).open == {}
    assert open_of(accused(100), passed(200), accused(300)) == ["thp"]


def test_it_has_to_be_the_load_that_would_have_shown_it() -> None:
    trial = accused(100, source="trial", name="gemm", drift=False, drains=True)
    assert open_of(trial, passed(200)) == ["gemm"]
    assert open_of(trial, passed(200, "gemm", 0)) == ["gemm"]
    assert open_of(trial, passed(200, "gemm", 0), passed(300)) == []
    assert open_of(trial, passed(200), passed(300, "gemm", 0)) == [], "with others, then by itself"
    memory = accused(100, name="gpu_ecc", drift=False)
    assert open_of(memory, passed(200, "gemm")) == ["gpu_ecc"], "one of its two loads"
    assert open_of(memory, passed(200, "gemm"), passed(300, "memory", 0)) == []
    later = (trial, passed(150), accused(200), passed(300, "gemm", 0))
    both = history(known(*later), alone=True)
    assert both.open == {} and not both.with_partners, "of two that fall one fell by the node's own word"


def test_what_was_passed_before_a_rung_says_nothing_of_the_node_after_it() -> None:
    trial = accused(100, source="trial", name="gemm", drift=False, drains=True)
    for done in (step(250, "begun", "reboot"), step(250, "taken back")):
        assert open_of(trial, passed(200, "gemm", 0), done, passed(300)) == ["gemm"]
    again = (trial, passed(200, "gemm", 0), passed(210), accused(300), step(310, "begun", "mend"), passed(400))
    assert open_of(*again) == [], "an earlier accusation that has fallen stays so"


BMC = Bmc(command=["power", "{node}"])
ALL, HERE, ONE = Service(rungs=list(REPAIRS), bmc=BMC), Facts(), Limits()


def next_step(
    *events: Incident | PassedLoad | Step, now: int = 1000, facts: Facts = HERE, allowed: Service = ALL
) -> Proposal:
    its = known(*events)
    return next_proposal("node1", history(its), its, facts, allowed, now)


def told(proposal: Proposal) -> tuple[str, str]:
    return proposal.kind, proposal.repair


def attempt(at: int, rung: str, outcome: Any = "done", **more: Any) -> tuple[Step, Step]:
    return step(at, "begun", rung, **more), step(at + 5, "ended", rung, outcome=outcome, **more)


def test_what_has_drifted_is_mended_before_the_repairs_of_a_graver_incident() -> None:
    grave = accused(100, source="diagnosis", name="gpu_reset", drift=False)
    assert escalation().entry_for(grave).steps[0].repair == "reload driver" and told(next_step(grave)) == (
        "repair",
        "reload driver",
    )
    assert told(next_step(grave, accused(110))) == ("repair", "mend")


def test_the_repairs_are_tried_in_order_and_end_with_a_person() -> None:
    events: list[Any] = [accused(100)]
    assert told(next_step(*events)) == ("repair", "mend")
    events += attempt(200, "mend")
    assert told(next_step(*events)) == ("load", "load"), "nothing is found any more: now under load"
    assert told(next_step(*events, accused(200))) == ("repair", "mend"), "in the second in which it began"
    events.append(accused(210))
    assert told(next_step(*events)) == ("repair", "mend"), "its second attempt"
    events += attempt(300, "mend", "failed")
    events.append(accused(310))
    assert told(next_step(*events)) == ("repair", "reboot")
    assert next_step(*events, allowed=Service()).kind == "hand over"
    events += attempt(400, "reboot", "failed")
    over = next_step(*events)
    assert over.kind == "hand over" and "mend was tried 2 times" in over.why and "reboot was tried once" in over.why
    events.append(step(500, "handed over", why=over.why))
    assert next_step(*events).kind == "leave"
    assert told(next_step(*events, step(600, "taken back"))) == ("load", "load"), "a person's word needs its proof, too"


@pytest.mark.parametrize("name", ["fleet.machine", "fleet.address.10.0.0.1", "fleet.bios", "fleet"])
def test_no_rung_is_taken_for_what_rests_on_another_node_s_word(name: str) -> None:
    """A node that claims another one's address, host key or serial has that one neither mended nor rebooted."""
    claimed = accused(10, name=name)
    assert next_step(claimed).kind == "leave" and "another node's report" in next_step(claimed).why
    both = next_step(claimed, accused(10, name="gpu_count"))
    assert (both.kind, both.name) == ("repair", "gpu_count")


def test_a_budget_is_of_the_node_and_of_a_time() -> None:
    earlier = (accused(10), *attempt(20, "mend"), passed(30), accused(40), *attempt(50, "mend"), passed(60))
    assert told(next_step(*earlier, accused(100))) == ("repair", "reboot"), "what comes back is not mended so again"
    assert told(next_step(*earlier, accused(100), now=100 + 8 * 86400)) == ("repair", "mend")


def test_an_interrupted_rung_is_begun_again_and_costs_nothing() -> None:
    assert told(next_step(accused(100), step(200, "begun", "reboot"))) == ("repair", "mend")
    reboot = (accused(100), *attempt(150, "mend", "failed"), *attempt(160, "mend", "failed"))
    cut = (*reboot, accused(170), step(200, "begun", "reboot"))
    assert told(next_step(*cut)) == ("repair", "reboot"), "its process is gone"
    assert told(next_step(*cut, step(201, "ended", "reboot", outcome="interrupted"))) == ("repair", "reboot")
    twice = (accused(100), step(200, "begun", "mend"), *attempt(300, "mend", "failed"))
    assert told(next_step(*twice, accused(310))) == ("repair", "mend"), "the end of the second is not that of the first"
    other = next_step(*cut, facts=Facts(claimed="ops@elsewhere:7"))
    assert other.kind == "leave" and "ops@elsewhere:7 is at work there" in other.why
    load = (accused(100), *attempt(200, "mend"), step(300, "begun", "load"))
    assert told(next_step(*load)) == ("load", "load")
    assert told(next_step(*load, accused(310))) == ("repair", "mend"), "accused anew, and no load would help"


def test_loads_that_come_to_nothing_end_with_a_person() -> None:
    events: list[Any] = [accused(100), *attempt(200, "mend")]
    for number in range(LOADS):
        assert next_step(*events).kind == "load"
        events += attempt(300 + 10 * number, "load", "failed")
        assert told(next_step(*events, accused(300 + 10 * number))) == ("repair", "mend"), "accused anew under load"
    assert next_step(*events).kind == "hand over"
    events += [step(400, "handed over"), step(500, "taken back"), *attempt(510, "load", "failed")]
    assert next_step(*events).kind == "load", "a person has seen to it: counted anew"


def test_a_node_that_does_not_answer_has_its_power_cycled_or_is_left_to_a_person() -> None:
    gone = accused(100, name="reachable", drift=False, drains=True)
    away = Facts(reached=False)
    assert told(next_step(gone, facts=away)) == ("repair", "power cycle")
    assert next_step(gone, facts=away, allowed=Service()).kind == "leave", "it may come back by itself"
    tried = (gone, *attempt(200, "power cycle", "failed"), accused(210, name="reachable", drift=False))
    assert next_step(*tried, facts=away).kind == "hand over"
    waits = next_step(accused(50), *attempt(60, "mend"), gone, facts=away, now=100)
    assert (*told(waits), waits.until) == ("wait", "power cycle", 220)
    assert told(next_step(gone, facts=away, now=219)) == ("wait", "power cycle"), "somebody else may have booted it"
    assert told(next_step(gone, facts=away, now=220)) == ("repair", "power cycle")
    without = next_step(accused(100, name="gpu_link", drift=False), *attempt(110, "reload driver", "failed"),
        *attempt(120, "reboot", "failed"), allowed=Service(rungs=list(REPAIRS)))  # fmt: skip
    assert without.kind == "hand over" and "no service.bmc" in without.why


def test_what_the_check_does_not_find_any_more_is_put_under_load_before_anything_is_done() -> None:
    nothing = Facts(found=frozenset())
    gone = (accused(100, name="gpu_count", drift=False), accused(100, name="reachable", drift=False))
    assert told(next_step(*gone, facts=nothing)) == ("load", "load")
    assert told(next_step(*gone, facts=Facts(found=frozenset({("finding", "gpu_count")})))) == (
        "repair",
        "reload driver",
    )
    cut = (*gone, *attempt(200, "reboot", "interrupted"))
    assert told(next_step(*cut, facts=nothing)) == ("load", "load"), "it came back after all"
    shown_again = (*gone, *attempt(200, "load", "failed"), accused(201, name="gpu_count", drift=False))
    assert told(next_step(*shown_again, facts=nothing)) == ("repair", "reload driver")
    trial = accused(100, source="trial", name="gemm", drift=False)
    assert told(next_step(trial, facts=nothing)) == ("repair", "mend"), "no check tells of it"
    assert told(next_step(accused(100), facts=nothing)) == ("repair", "mend"), "the next boot may bring it back"


def test_what_only_waits_for_a_boot_is_not_mended_once_more() -> None:
    assert told(next_step(accused(100), facts=Facts(pending=True))) == ("repair", "reboot")
    over = next_step(accused(100), facts=Facts(pending=True), allowed=Service())
    assert over.kind == "hand over" and "wait for a boot" in over.why


@pytest.mark.parametrize(
    ("facts", "limits_of", "why"),
    [
        (Facts(job="Slurm: allocated"), Limits(), "never a node with a job: Slurm: allocated"),
        (Facts(job="on its GPUs: python3 (7)"), Limits(), "never a node with a job: on its GPUs: python3 (7)"),
        (Facts(unmanaged="drained: bad fan [joe]"), Limits(), "another user took"),
        (Facts(drainable=False), Limits(), "could start a job"),
        (Facts(), Limits(stopped="too many"), "too many"),
        (Facts(), Limits(busy={"node8"}), "service.at_once allows 1"),
    ],
)
def test_what_is_never_done(facts: Facts, limits_of: Limits, why: str) -> None:
    its = {"node1": known(accused())}
    (found,) = proposals({"node1": history(its["node1"])}, its, {"node1": facts}, {"node1": ALL}, limits_of, 1000)
    assert found.kind == "leave" and why in found.why
    (unasked,) = proposals({"node1": history(its["node1"])}, its, {}, {"node1": ALL}, Limits(), 1000)
    assert unasked.kind == "leave", "what is not known counts against acting"


def test_a_node_with_a_job_in_the_scheduler_is_drained_and_waited_for() -> None:
    its = {"node1": known(accused())}
    histories, facts = {"node1": history(its["node1"])}, {"node1": Facts(job="Slurm: mixed", waits=True)}
    (found,) = proposals(histories, its, facts, {"node1": ALL}, Limits(), 1000)
    assert found.kind == "drain"
    (found,) = proposals(histories, its, facts, {"node1": ALL}, Limits(busy={"node8"}), 1000)
    assert found.kind == "leave"
    its["node2"] = known(accused(node="node2"))
    histories, facts = {name: history(each) for name, each in its.items()}, dict.fromkeys(its, facts["node1"])
    found_of = [each.kind for each in proposals(histories, its, facts, dict.fromkeys(its, ALL), Limits(), 1000)]
    assert found_of == ["drain", "leave"], "one that is drained is out"


def test_no_operation_is_tried_for_what_none_changes() -> None:
    assert told(next_step(accused(100, name="gpu_count", drift=False))) == ("repair", "reload driver")
    assert told(next_step(accused(100, name="gpu_count", drift=False), accused(100))) == ("repair", "mend")
    assert told(next_step(accused(100, source="diagnosis", name="killed", drift=False))) == ("repair", "mend")


def test_never_more_than_at_once_and_what_was_begun_comes_first() -> None:
    its = {name: known(accused(node=name)) for name in NODES}
    its["node3"] = known(accused(node="node3"), *attempt(200, "mend", node="node3"))
    histories = {name: history(each) for name, each in its.items()}
    facts, allowed = dict.fromkeys(NODES, Facts()), dict.fromkeys(NODES, ALL)
    found = proposals(histories, its, facts, allowed, Limits(at_once=2), 1000)
    assert [(each.node, each.kind) for each in found] == [("node3", "load"), ("node1", "repair"), ("node2", "leave")]
    found = proposals(histories, its, facts, allowed, Limits(busy={"node1"}), 1000)
    kinds = {each.node: each.kind for each in found}
    assert kinds == {"node3": "leave", "node1": "repair", "node2": "leave"}, "who is out already is gone on with"


def test_limits_of_hosts_that_say_different_things() -> None:
    assert decide.at_once([Service(at_once="10%"), Service(at_once="5")], 64) == 5
    assert decide.at_once([Service(at_once="1%")], 64) == 1
    assert decide.stop_at([Service(stop_at="25%")], 3) == 1
    assert decide.too_many_named(["node1"], 1) == ""
    assert "2 nodes are named at once" in decide.too_many_named(["node1", "node2"], 1)
    failed = {name: known(*attempt(200, "mend", "failed", node=name)) for name in NODES}
    assert "3 nodes have failed" in decide.too_many_failed(failed, 1000, 1)
    assert decide.too_many_failed(failed, 1000, 3) == ""
    assert decide.too_many_failed(failed, 200_000, 1) == "", "a day later"
    later = {name: known(*its.steps, *attempt(300, "reboot", node=name)) for name, its in failed.items()}
    assert decide.too_many_failed(later | {"node1": failed["node1"]}, 1000, 1) == "", "the others were mended since"
    under_load = {name: known(*attempt(200, "load", "failed", node=name)) for name in NODES}
    assert "3 nodes have failed" in decide.too_many_failed(under_load, 1000, 1)
    cut = {name: known(*attempt(200, "mend", "interrupted", node=name)) for name in NODES}
    assert decide.too_many_failed(cut, 1000, 1) == ""


def in_slurm(name: str = "node1", *states: str, reason: str = "") -> Node:
    return Node(name=name, states=list(states or ("IDLE",)), reason=reason)


BAD = accused(100, source="trial", name="gemm", what="gpu3: 0.5 of its peers", drift=False, drains=True)


def marked(*events: Any, nodes: dict[str, Node] | None = None, limits: Limits = ONE) -> list[tuple[str, str]]:
    its = {"node1": known(*events)}
    there = nodes or {"node1": in_slurm()}
    found = marks({"node1": history(its["node1"])}, its, there, names_in(there, {"node1": None}), limits)
    return [(each.what, each.reason if each.what == "drain" else each.why) for each in found]


def test_a_suspect_is_drained_and_nobody_elses_reason_is_touched() -> None:
    reason = "shakedown:run100 gemm gpu3: 0.5 of its peers"
    assert marked(BAD) == [("drain", reason)]
    assert marked(accused()) == [], "drift is mended, not drained"
    drained = [in_slurm("node1", "IDLE", "DRAIN", reason=given) for given in ("bad fan", "", "shakedown:other gemm")]
    for node in (*drained, in_slurm("node1", "DOWN"), in_slurm(reason="x")):
        ((what, _),) = marked(BAD, nodes={"node1": node})
        assert what == "leave"
    ours = {"node1": in_slurm("node1", "IDLE", "DRAIN", reason=reason)}
    assert marked(BAD, step(150, "drained", why=reason), nodes=ours) == []
    ((what, why),) = marked(
        BAD, nodes={**ours, "node1": in_slurm(), "node9": in_slurm("node9", "DRAIN", reason=reason)}
    )
    assert what == "leave" and "at_once allows 1" in why, "those that are out already count"
    freed = {"node1": in_slurm(reason=reason), "node9": in_slurm("node9", reason=reason)}
    assert marked(BAD, step(150, "drained", why=reason), nodes=freed) == [("drain", reason)], "not drained any more"
    wordless = {"node1": in_slurm("node1", "IDLE", "DRAIN")}
    assert marked(BAD, step(150, "drained"), nodes=wordless)[0][0] == "leave", "nobody's reason is not ours"
    assert marked(BAD, limits=Limits(stopped="too many"))[0] == ("leave", "too many")
    assert marked(BAD, nodes={"node2": in_slurm("node2")})[0][0] == "leave"


def test_only_what_we_drained_and_a_later_run_has_cleared_is_resumed() -> None:
    reason = drain_reason(BAD)
    drained, ours = step(150, "drained", why=reason), {"node1": in_slurm("node1", "IDLE", "DRAIN", reason=reason)}
    cleared = (passed(200, "gemm", 0), passed(210))
    assert [what for what, _ in marked(BAD, drained, *cleared, nodes=ours)] == ["resume"]
    assert [what for what, _ in marked(BAD, *cleared, nodes=ours)] == ["leave"], "the ledger knows of no such drain"
    for reason_now in ("shakedown:other gemm", reason + " and more", "bad fan"):
        other = {"node1": in_slurm("node1", "IDLE", "DRAIN", reason=reason_now)}
        assert "resume" not in [what for what, _ in marked(BAD, drained, *cleared, nodes=other)]
    alone = {"node1": known(BAD, drained, passed(200, "gemm", 0), passed(210, others=0))}
    names = {"node1": "node1"}
    found = marks({"node1": history(alone["node1"], alone=True)}, alone, ours, names, Limits())
    assert [each.what for each in found] == ["leave"], "nobody is resumed by its own word"
    for at in (210, 300):
        late = step(at, "drained", why=reason)
        assert [what for what, _ in marked(BAD, *cleared, late, nodes=ours)] == ["leave"]
    assert marked(BAD, drained, *cleared, nodes={"node1": in_slurm(reason=reason)}) == [], "somebody has resumed it"
    resumed = (drained, *cleared, step(220, "resumed"))
    assert [what for what, _ in marked(BAD, *resumed, nodes=ours)] == ["leave"], "drained by somebody with our words"


def test_a_witness_goes_back_though_it_has_drifted_and_not_if_more_has_come_up() -> None:
    hold = step(200, "drained", name=PARTNER, why="shakedown:service witness for the load of node2")
    there = {"node1": in_slurm("node1", "IDLE", "DRAIN", reason=hold.why)}
    assert [what for what, _ in marked(accused(100), hold, accused(210), nodes=there)] == ["resume"]
    assert marked(accused(100), hold, accused(210, name="gpu_count", drift=False, drains=True), nodes=there) == []


def test_so_many_are_drained_together_as_may_be_out_and_one_that_is_resumed_makes_room() -> None:
    bad = {name: known(BAD.model_copy(update={"node": name})) for name in ("node1", "node2")}
    reason = drain_reason(BAD)
    back = known(BAD, step(150, "drained", why=reason), passed(200, "gemm", 0), passed(210))
    there = {name: in_slurm(name) for name in NODES}
    out = {**there, "node3": in_slurm("node3", "DRAIN", reason=reason)}
    names = {name: name for name in NODES}

    def of(its: dict[str, Known], nodes: dict[str, Node], at_once: int) -> list[tuple[str, str]]:
        found = marks({node: history(each) for node, each in its.items()}, its, nodes, names, Limits(at_once))
        return [(each.node, each.what) for each in found]

    assert of(bad, there, 1) == [("node1", "drain"), ("node2", "leave")]
    assert of(bad, there, 2) == [("node1", "drain"), ("node2", "drain")]
    assert of(bad, out, 2) == [("node1", "drain"), ("node2", "leave")], "one is out already"
    assert of({**bad, "node3": back}, out, 1) == [("node3", "resume"), ("node1", "drain"), ("node2", "leave")]
    (down,) = of({"node3": back}, {"node3": in_slurm("node3", "DOWN", "DRAIN", reason=reason)}, 1)
    assert down == ("node3", "leave"), "well, and the scheduler does not reach it"
    held = known(step(150, "drained", why=reason, name=PARTNER))
    (mark,) = marks({"node3": history(held)}, {"node3": held}, out, names, ONE)
    assert mark.what == "resume" and str(mark).endswith("drained only for the load of another node")
    assert str(marks({"node1": history(bad["node1"])}, bad, there, names, ONE)[0]).endswith(reason)


def test_no_word_of_a_node_becomes_anything_but_the_end_of_its_reason() -> None:
    evil = 'x" State=RESUME Reason=none [root@2026-11-23T08:00:00]\nNodeName=node2 State=IDLE\x1b[31m' + "y" * 500
    reason = drain_reason(BAD.model_copy(update={"what": evil, "name": HOSTILE}))
    assert reason.startswith("shakedown:run100 ") and len(reason) <= 200 and reason.isprintable()
    assert not set(reason) & set("=[]\"'\\,;@|\n")
    line = f"NodeName=node1 State=IDLE+DRAIN CPUTot=2 Reason={reason} [root@2026-11-23T08:00:00]"
    (read,) = from_text(line)
    assert (read.name, read.states, read.reason) == ("node1", ["IDLE", "DRAIN"], reason)


def test_a_host_has_the_name_in_slurm_that_the_inventory_gives_it() -> None:
    there = {"node1": in_slurm("node1"), "node2.rack7": in_slurm("node2.rack7"), "node2": in_slurm("node2")}
    assert names_in(there, dict.fromkeys(["node1.rack7", "node2.rack7", "node9"])) == {
        "node1.rack7": "node1", "node2.rack7": "node2.rack7"
    }  # fmt: skip
    assert names_in(there, dict.fromkeys(["node1.rack7", "node1.rack8"])) == {}, "nobody can say which of them it is"
    assert names_in(there, {"a": "node1", "b": "node1", "c": "node2", "d": "gone"}) == {"c": "node2"}


def test_a_board_says_where_each_node_stands() -> None:
    def standing(*events: Any, scheduled: Node | None = None) -> str:
        its = known(*events)
        return shown("node1", its, history(its), scheduled=scheduled).standing

    assert standing() == "in service"
    assert standing(accused()) == "suspect"
    assert standing(accused(), step(200, "begun", "mend")) == "being mended"
    assert standing(accused(), step(200, "handed over")) == "out"
    assert standing(accused(), step(200, "handed over"), step(300, "taken back")) == "suspect"
    assert standing(scheduled=in_slurm("node1", "IDLE", "DRAIN", reason="bad fan")) == "out"
    assert standing(scheduled=in_slurm("node1", "DOWN")) == "out"
    ours = in_slurm("node1", "IDLE", "DRAIN", reason="shakedown:run1 gemm")
    assert standing(step(50, "drained", why=ours.reason), scheduled=ours) == "out"
    assert standing(accused(), *attempt(200, "mend"), passed(300)) == "in service"
    for events, verdict in (
        ((), Verdict.OK),
        ((accused(),), Verdict.DRIFT),
        ((BAD,), Verdict.FAIL),
        ((accused(), step(200, "handed over")), Verdict.FAIL),
        ((accused(source="unread", drift=False),), Verdict.UNKNOWN),
    ):
        its = known(*events)
        assert Board([shown("node1", its, history(its))]).verdict == verdict
    assert Board([]).verdict == Verdict.UNKNOWN
    assert Board([shown("node1", Known(), history(Known()))], ["Slurm does not answer"]).verdict == Verdict.UNKNOWN
    untold = shown("node1", Known(), history(Known()), unread="Slurm has no node of that name")
    assert (untold.standing, untold.why) == ("unknown", "Slurm has no node of that name")
    assert Board([untold]).verdict == Verdict.UNKNOWN
    again = known(accused(100), accused(300))
    assert shown("node1", again, history(again)).since == 100


def test_what_the_escalation_names_is_there() -> None:
    sources = ("finding", "unread", "gate", "trial", "diagnosis", "isolation")
    for entry in escalation().entry:
        assert all(name == "*" or name.split()[0] in (*sources, "*") for name in entry.names)
        assert all(load in ("smoke", "{name}", *trials()) for load in entry.shown_by), entry.names
    names = [*proofs(), *(each.name for log in ("kernel", "job") for each in entries(log))]
    known = [f"diagnosis {name}" for name in names]
    for name in (name for entry in escalation().entry for name in entry.names if name.startswith("diagnosis ")):
        assert matching(known, name), f"{name}: neither the catalogue nor the controller has such a name"
    assert escalation().shown_by(accused(source="trial", name="memory")) == ["memory"]
    assert [each.repair for each in escalation().entry_for(accused(source="isolation", name="link")).steps] == ["mend"]


@pytest.mark.parametrize("node", ["localhost", "127.0.0.1", "127.0.0.9", "HERE", "HERE.rack7", "ip6-loopback.invalid"])
def test_the_machine_that_runs_this_keeps_its_power(tmp_path: Any, node: str) -> None:
    cut = tmp_path / "cut"
    bmc = Bmc(command=["/bin/sh", "-c", f"touch {cut}", "{node}"])
    node = node.replace("HERE", socket.gethostname().partition(".")[0].upper())
    if node.endswith(".invalid"):
        cycle(bmc, node)
        assert cut.exists(), "another's name"
        return
    with pytest.raises(PowerError, match="the machine that runs this"):
        cycle(bmc, node)
    with pytest.raises(PowerError, match="the machine that runs this"):
        cycle(bmc, "node7.invalid", address=node)
    assert not cut.exists()


def test_power_goes_by_the_sites_command_and_its_secret_by_a_variable(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET", "other")
    script = tmp_path / "bmc"
    script.write_text('#!/bin/sh\nenv > "$2.env"; echo "$1 $BMC_PASSWORD" >&2; exit ${3:-0}\n')
    script.chmod(0o700)
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    out = tmp_path / "out"
    bmc = Bmc(command=[str(script), "{node}", str(out)], password_file=str(secret))
    cycle(bmc, "node1.rack7")
    given = (tmp_path / "out.env").read_text()
    assert "BMC_PASSWORD=hunter2" in given and "AWS_SECRET" not in given
    failing = bmc.model_copy(update={"command": [*bmc.command, "7"]})
    with pytest.raises(PowerError, match=r"ended with 7: node1 \*\*\*"):
        cycle(failing, "node1")
    cut = ["sh", "-c", 'printf "%s%01996d" "$BMC_PASSWORD" 0; exit 7']  # what is told begins within the password
    with pytest.raises(PowerError, match=r"ended with 7: (\*\*\*)?0+") as told:
        cycle(bmc.model_copy(update={"command": cut}), "node1")
    assert "ter2" not in str(told.value)
    for update, why in (({"command": ["sh", "-c", "kill -9 $$"]}, "ended with -9"), (
        {"command": ["sleep", "600"], "timeout_s": 0.1}, "took more than 0.1 s")):  # fmt: skip
        with pytest.raises(PowerError, match=why):
            cycle(bmc.model_copy(update=update), "node1")
    for name in ("--all", "../node1", "a b", "node1;reboot"):
        with pytest.raises(PowerError, match="is no safe name"):
            command_for(bmc, name)
    with pytest.raises(PowerError, match="is not set"):
        cycle(Bmc(command=["true"], password_env="NOT_THERE"), "node1")


def test_a_step_is_written_with_its_reason_where_it_has_one() -> None:
    step = Step(node="a", at=0, done="ended", rung="reboot", outcome="failed", why="no answer", run_id="r1")
    assert step_line(step) == "1970-01-01 00:00 ended reboot: failed (no answer) [r1]"
    assert step_line(Step(node="a", at=0, done="ended", rung="reboot")) == "1970-01-01 00:00 ended reboot"


def test_the_next_action_is_said_in_words() -> None:
    said = {kind: _next(Proposal("n1", kind, "why", repair="reboot", until=0)) for kind in ("wait", "leave", "repair")}
    assert said == {"wait": "reboot from 1970-01-01 00:00 on", "leave": "why", "repair": "reboot"}
