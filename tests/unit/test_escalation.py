"""The escalation: what is done with nodes, in which order, and what the ledger says of it afterwards.

The ledger is a real one. The nodes are states in memory, and in the place of our commands stands what these would have
done with them; the clock goes on when somebody waits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shakedown.checks.examination import Examination, Reading
from shakedown.ledger import claims as book
from shakedown.ledger.store import Ledger, open_ledger
from shakedown.runner.repair import escalation
from shakedown.runner.repair.child import Commands
from shakedown.runner.repair.escalation import Escalation
from shakedown.runner.repair.service import Picture, picture
from shakedown.runs.directory import JobRecord, RunDirectory, RunNode
from shakedown.service.model import Step
from shakedown.state.findings import Finding, FixedBy, Remedy, Verdict
from tests.plans import small
from tests.states import bare, desired
from tests.unit.test_service import a_record

NODES = ("node1", "node2", "node3")
SMOKE = {"recipe": "gpt-small", "ranks_per_node": 1, "venv": "/opt/venv"}
DRIFT = {"verdict": Verdict.DRIFT, "wanted": 0, "actual": 1}


@dataclass
class Lab(Commands):
    """Nodes, and what our commands would do with them."""

    ledger: Ledger = field(kw_only=True)
    folder: Path = field(kw_only=True)
    found: dict[str, list[Finding]] = field(default_factory=dict)  # what a check finds now
    away: set[str] = field(default_factory=set)
    boots: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    did: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    service: dict[str, Any] = field(default_factory=dict)
    hooks: dict[str, Any] = field(default_factory=dict)  # what happens during a command, by its name
    runs: int = 0

    def escalation(self) -> Escalation:
        return Escalation(self.ledger, self, self.look, self.said.append)

    def look(self, hosts: Sequence[str] = ()) -> Picture:
        each = desired(gpu="cpu", nic=None, smoke=SMOKE, service=self.service)
        examination = Examination(dict.fromkeys(hosts or NODES, each))
        for number, node in enumerate(NODES, 1):
            if node not in examination.desired:
                continue
            state = bare(number)
            system = state.system.model_copy(update={"boot_id": f"{number}-{self.boots[node]}"})
            examination.readings[node] = Reading(state.model_copy(update={"system": system}))
            if node in self.away:
                examination.readings[node] = Reading(None, "no answer")
            examination.findings[node] = self._findings(node)
        return picture(self.ledger, examination, NODES, kept=True)

    def _findings(self, node: str) -> list[Finding]:
        if node in self.away:
            return [Finding(name="reachable", node=node, verdict=Verdict.FAIL, wanted="an answer", actual="none")]
        return self.found.get(node, [])

    def run(self, argv: Sequence[str]) -> int:
        if self.interrupted:
            return 130
        hosts = [word for before, word in pairwise(argv) if before == "--limit"]
        name = argv[1] if argv[0].endswith("shakedown") else Path(argv[2]).stem
        self.did.append(f"{name} {' '.join(hosts)}")
        came_to = self.hooks.get(name, lambda _: None)(hosts)
        if name == "reboot" and came_to is None:
            self.boots.update({host: self.boots[host] + 1 for host in hosts})
        if not self.interrupted:
            self.keep("drift" if name == "drift" else "run", hosts, trained=name == "load" and not came_to)
        return came_to or 0

    def keep(self, kind: Any, hosts: Sequence[str], trained: bool = False) -> None:
        self.runs += 1
        when = datetime.fromtimestamp(time.time(), UTC)
        plan = small()
        nodes = [plan.nodes[0].model_copy(update={"name": host}) for host in hosts]
        findings = [each for host in hosts for each in self._findings(host)]
        bad = {each.node for each in findings}
        record = a_record(
            run_id=f"{when:%Y%m%dT%H%M%S}-{self.runs:06x}",
            kind=kind,
            started_at=when.isoformat(),
            finished_at=when.isoformat(),
            findings=findings,
            nodes=[
                RunNode(name=host, verdict=Verdict.DRIFT if host in bad else Verdict.OK, part="examined")
                for host in hosts
            ],
            jobs=[JobRecord(plan=plan.model_copy(update={"nodes": nodes}))] if trained else [],
        )
        directory = RunDirectory.create(record.run_id, self.folder)
        directory.save(record, {})
        self.ledger.add(directory)

    def taken(self, node: str) -> Sequence[Step]:
        return book.known_of(self.ledger, [node])[node].steps

    def steps(self, node: str) -> list[tuple[str, str, str]]:
        return [(step.done, step.rung, step.outcome) for step in self.taken(node)]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    clock = {"now": time.time()}
    monkeypatch.setattr(time, "time", lambda: clock["now"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.update(now=clock["now"] + seconds))
    return Lab("rack.py", ledger=open_ledger(tmp_path / "ledger.sqlite"), folder=tmp_path / "runs")


def finding(node: str, name: str = "thp", **more: Any) -> Finding:
    return Finding(node=node, name=name, **{**DRIFT, **more})


def begun_and(outcome: str, rung: str) -> list[tuple[str, str, str]]:
    return [("begun", rung, ""), ("ended", rung, outcome)]


def test_what_waits_for_a_boot_is_rebooted_and_loaded_node_by_node_though_all_have_drifted(lab: Lab) -> None:
    lab.service = {"rungs": ["mend", "reboot"]}
    lab.found = {node: [finding(node, "cmdline")] for node in NODES}
    lab.keep("drift", NODES)

    def written(hosts: Sequence[str]) -> None:
        lab.found.update(
            {host: [finding(host, "cmdline", remedy=Remedy(text="reboot", by=FixedBy.REBOOT))] for host in hosts}
        )

    def booted(hosts: Sequence[str]) -> None:
        lab.found.update({host: [] for host in hosts})

    lab.hooks = {"run": written, "reboot": booted}
    lab.escalation().run(lab.look())
    for node in NODES:
        assert lab.steps(node) == [*begun_and("done", "mend"), *begun_and("done", "reboot"), *begun_and("done", "load")]
        assert f"reboot {node}" in lab.did, "service.at_once is 1"
    assert not any(its.open for its in lab.look().histories.values())


def test_a_reboot_that_did_not_happen_is_not_said_to_have(lab: Lab) -> None:
    lab.service = {"rungs": ["reboot"]}
    lab.found = {"node2": [finding("node2")]}
    lab.keep("drift", NODES)
    lab.found = {}
    lab.hooks = {"reboot": lambda _: 1}
    lab.escalation().run(lab.look())
    assert lab.steps("node2")[:2] == begun_and("failed", "reboot")
    assert any("was not rebooted" in line for line in lab.said)


def test_an_interrupted_rung_is_closed_so_and_gone_on_with(lab: Lab) -> None:
    lab.found = {"node2": [finding("node2")]}
    lab.keep("drift", NODES)

    def stopped(_: Sequence[str]) -> int:
        lab.interrupted = True
        return 130

    lab.hooks = {"run": stopped}
    lab.escalation().run(lab.look())
    assert (lab.did, lab.steps("node2")) == (["run node2"], begun_and("interrupted", "mend"))
    lab.interrupted, lab.hooks = False, {"run": lambda hosts: lab.found.pop(hosts[0]) and None}
    lab.escalation().run(lab.look())
    assert lab.steps("node2")[2:] == [*begun_and("done", "mend"), *begun_and("done", "load")]


def test_a_witness_that_spoils_each_load_does_not_keep_a_node_out(lab: Lab) -> None:
    lab.found = {"node2": [finding("node2")]}
    lab.keep("drift", NODES)
    lab.hooks = {"run": lambda _: lab.found.clear(), "load": lambda hosts: int("node1" in hosts)}
    lab.escalation().run(lab.look())
    assert lab.steps("node2")[2:] == [*begun_and("failed", "load"), *begun_and("done", "load")]
    assert not lab.look().histories["node2"].open


def test_power_is_only_cut_from_what_does_not_answer_for_two_minutes(lab: Lab, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    command = ["/bin/sh", "-c", f"echo $0 >> {cut}; exit 1", "{node}"]
    lab.service = {"rungs": ["mend", "power cycle"], "bmc": {"command": command, "unasked": True}}
    lab.away = {"node2"}
    lab.keep("drift", NODES)
    first = lab.look()
    lab.away = set()  # somebody else's reboot is over
    lab.escalation().run(first)
    assert (cut.exists(), lab.steps("node2")) == (False, begun_and("done", "load"))

    time.sleep(5)
    lab.away, began = {"node2"}, int(time.time())
    lab.keep("drift", NODES)
    lab.escalation().run(lab.look())
    assert cut.read_text().split() == ["node2"]
    (begun,) = (step for step in lab.taken("node2") if (step.done, step.rung) == ("begun", "power cycle"))
    assert begun.at >= began + 120
    assert ("handed over", "", "") in lab.steps("node2"), "it was tried once within a week"


def test_a_controller_that_lost_all_its_claims_does_nothing_to_anybody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command without a host would have no --limit, and be over the whole inventory: here, its reboot."""
    lab.service = {"rungs": ["reboot"]}
    lab.found = {"node1": [finding("node1")]}
    lab.keep("drift", NODES)
    monkeypatch.setattr(escalation, "renew", lambda *_: set())
    lab.escalation().run(lab.look())
    assert lab.did == [] and any("nothing is done" in line for line in lab.said)
    with pytest.raises(ValueError, match="over no host"):
        Commands("rack.py").deploy("reboot", [])


def test_power_is_not_cut_from_the_machine_that_runs_this(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = tmp_path / "cut"
    lab.service = {"rungs": ["power cycle"], "bmc": {"command": ["/bin/sh", "-c", f"touch {cut}", "{node}"]}}
    seen = lab.look()
    monkeypatch.setattr(escalation, "boot_id_here", lambda: seen.examination.states["node2"].system.boot_id)
    assert "the machine that runs this" in lab.escalation()._power(seen, ["node2"])["node2"]
    seen.examination.readings["node3"] = Reading(why="no answer", address="127.0.0.1")
    assert "the machine that runs this" in lab.escalation()._power(seen, ["node3"])["node3"], "it is reached at ours"
    assert not cut.exists()


def test_a_driver_that_could_not_be_reloaded_is_told_by_its_own_node(lab: Lab) -> None:
    lab.service = {"rungs": ["reload driver"], "at_once": "2", "stop_at": "3"}
    lab.found = {node: [finding(node, "gpu_count", verdict=Verdict.FAIL)] for node in ("node1", "node2")}
    lab.keep("drift", NODES)

    def reloaded(hosts: Sequence[str]) -> int | None:
        return 1 if hosts == ["node1"] else lab.found.pop(hosts[0]) and None

    lab.hooks = {"reload_driver": reloaded}
    lab.escalation().run(lab.look())
    assert lab.steps("node1")[:2] == begun_and("failed", "reload driver")
    assert lab.steps("node2")[:2] == begun_and("done", "reload driver")
