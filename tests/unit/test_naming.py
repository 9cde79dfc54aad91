"""A fault in each phase of a job, on all nodes or on one: which node is named, in every view of the run. The
supervision, the judgement and the views are the product's; the nodes follow a script."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click.testing
import pytest
from pyinfra.api import Config, Inventory, State
from pyinfra.context import ctx_state

from shakedown.checks.examination import Examination, Reading
from shakedown.cli.commands.history import history
from shakedown.cli.commands.report import report
from shakedown.hosts import nodes
from shakedown.jobs.launch import Job
from shakedown.report.summary import LINES, WIDTH
from shakedown.runner import stages
from shakedown.runner.ending import finish, watch
from shakedown.runner.progress import progress
from shakedown.runner.pyinfra.invocation import invocation
from shakedown.runner.session import Session, enter
from shakedown.runner.training import conclude_run
from shakedown.runs.directory import JobRecord
from shakedown.state.findings import Verdict
from tests.plays import LINE, PHASES, TORCHRUN, WAITS, Play, after
from tests.states import bare, desired
from tests.turns import Script, Turns

NODES = ("node1", "node2", "node3")


class Views:
    """A run over nodes whose job ends as the script says, and what each view shows of it."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        names: Sequence[str] = NODES,
    ) -> None:
        monkeypatch.setenv("SHAKEDOWN_RUNS", str(folder / "runs"))
        monkeypatch.setenv("SHAKEDOWN_LEDGER", str(folder / "ledger.sqlite"))
        monkeypatch.setattr(invocation, "interrupted", False)
        monkeypatch.setattr(Examination, "verdict_of", lambda _self, _node: Verdict.OK)
        self.capsys = capsys
        self.state = State()
        self.state.init(Inventory((list(names), {})), Config())
        for host in self.state.inventory:
            self.state.activate_host(host)
        watch(self.state)
        examination = Examination(dict.fromkeys(names, desired("cpu", None, smoke={"recipe": "gpt-small"})))
        for number, name in enumerate(names, 1):
            examination.readings[name] = Reading(state=bare(number))
            progress(self.state).hosts[name].examined = True
        self.session = enter(Session(self.state, examination))
        self.session.open_run()
        assert self.session.directory is not None
        self.folder = self.session.directory.path
        self.play = Play(Turns(monkeypatch), folder)
        self.play.logs = self.session.directory.logs

    def end(self, plan: dict[str, Any] | None = None, **nodes: Script) -> None:
        """Run the job to its end, judge it, and end the run."""
        result = self.play(plan=plan, **nodes)
        plan, record = self.play.plan, self.session.record
        assert record is not None
        record.jobs.append(JobRecord(plan=plan))
        self.session.jobs.append(Job(make_plan=lambda: plan, log_dir=Path(), plan=plan, result=result))
        conclude_run(self.session)
        with ctx_state.use(self.state):
            for host in self.session.hosts:
                if not stages._conclude(self.state, host):  # as pyinfra then does
                    self.session.run_of(host.name).fail("Judge the smoke run")
        finish(self.state)
        end = self.capsys.readouterr().err.rpartition("verdict: fail")[2]
        lines = [line for line in end.splitlines() if not line.startswith("report: ")]  # a path is as long as it is
        assert max(map(len, lines)) <= WIDTH and end.count("\n") < LINES
        self.end_lines = f"verdict: fail{end}".splitlines()
        self.closing = re.sub(r"\n {8}", " ", end).splitlines()
        self.record = json.loads((self.folder / "run.json").read_text())

    def closed(self, kind: str) -> set[str]:
        """Return the nodes that the closing lines show as that."""
        lines = [line.split(": ")[1] for line in self.closing if re.match(f"  {kind}: (?!gate )", line)]
        return {name for line in lines for name in line.split(", ")}

    def report(self, form: str) -> str:
        return self.shown(report, "latest", "--format", form, *(["-v"] if form == "table" else []))

    def shown(self, command: click.Command, *arguments: str) -> str:
        return click.testing.CliRunner().invoke(command, arguments, env={"COLUMNS": "10000"}).output

    def failed(self) -> dict[str, set[str]]:
        """Return the nodes that each view shows as failed, or not known to be well."""
        table = [line for line in self.report("table").splitlines() if re.match(r"node\S+ +(?:ok|fail|unknown) ", line)]
        junit = ElementTree.fromstring(self.report("junit")).findall(".//testcase[@classname='nodes']")
        markdown = re.findall(
            r"^\| (?:fail|unknown) \| `(?:failed|undecided)` \| `([^`]+)`", self.report("markdown"), re.MULTILINE
        )
        page = self.report("html").partition('aria-label="Nodes"')[2].partition("</table>")[0].splitlines()
        metrics = re.findall(r'node_verdict\{.*node="(\w+)",.*verdict="(?:fail|unknown)"', self.report("prometheus"))
        past = {name: self.shown(history, "--node", name) for name in NODES}
        first = re.match(r": (node\d(?:, node\d)*) \(", self.closing[0])  # the nodes that the verdict names
        return {
            "closing lines": self.closed("failed")
            | self.closed("unknown")
            | set(first[1].split(", ") if first else ()),
            "run.json": {each["name"] for each in self.record["nodes"] if each["verdict"] != "ok"},
            "json": {each["name"] for each in json.loads(self.report("json"))["nodes"] if each["verdict"] != "ok"},
            "table": {name for line in table if " ok " not in line for name in nodes(line.split()[0])},
            "markdown": {name for each in markdown for name in nodes(each)},
            "junit": {each.attrib["name"] for each in junit if len(each)},
            "page": {name for row in page if 'data-verdict="ok"' not in row for name in named_in(row)},
            "prometheus": set(metrics),
            "history": {name for name, text in past.items() if re.search(rf" {name}  +(?:fail|unknown) ", text)},
            "exit_codes": set(re.findall(r"(node\d) ended with", self.gate("exit_codes"))),
        }

    def gate(self, name: str) -> str:
        return next((str(gate["evidence"]) for gate in self.record["gates"] if gate["name"] == name), "")


def named_in(row: str) -> list[str]:
    """Return the nodes that a row of the page is of."""
    name = re.search(r"(node[^<]*)</th><td[^>]*>", row)
    return nodes(name[1]) if name else []


@pytest.fixture
def views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Views:
    return Views(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("phase", PHASES)
def test_a_fault_that_all_nodes_have_names_none_of_them(views: Views, phase: str) -> None:
    fault = PHASES[phase]
    views.end(node1=fault(1.0), node2=fault(2.0), node3=fault(3.0))
    found = views.record["diagnosis"]
    assert (found["common"], found["nodes"], found["origin"], found["among"]) == (list(NODES), 3, [], [])
    assert views.closing[0].startswith(": 3 of 3 nodes: ") and ": check the " in views.closing[0]
    assert not any(name in views.closing[0] for name in NODES)
    if phase in ("image", "venv", "torch", "mount"):
        assert views.closing[0].endswith(": check the inventory or the image")
    for view, failed in views.failed().items():
        assert failed == set(NODES) or view == "exit_codes", view
    assert views.closed("stopped") == views.closed("ok") == set()


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "rendezvous"])
def test_a_fault_that_one_node_has_names_that_node_alone(views: Views, phase: str) -> None:
    views.end(node1=WAITS, node2=PHASES[phase](1.0), node3=WAITS)
    found = views.record["diagnosis"]
    assert (found["origin"], found["among"], found["common"]) == (["node2"], [], [])
    assert views.closing[0].startswith(f": node2 ({found['confidence']}: ")
    for view, failed in views.failed().items():
        assert failed == {"node2"} or (view == "exit_codes" and not failed), view
    assert views.closed("stopped") == {"node1", "node3"} and views.closed("ok") == set()
    how = "not started" if phase in ("connect", "image") else "stopped by the controller"
    assert f"  stopped: node1, node3: {how}: the failure began on node2" in views.closing
    why = {each["name"]: (each["why"], each["exit_code"]) for each in views.record["nodes"]}
    assert why["node1"] == why["node3"] == (how, None) and why["node2"][0].startswith("failed: ")
    for name in ("node1", "node3"):
        assert f": {how};" in views.shown(history, "--node", name)


def test_while_it_is_undecided_no_view_shows_a_node_as_ok(views: Views) -> None:
    """One node did not find the master: that node, the master, or what is between them."""
    views.end(node1=WAITS, node2=PHASES["rendezvous"](1.0), node3=WAITS)
    found = views.record["diagnosis"]
    assert (found["confidence"], found["origin"], found["common"]) == ("undecided", [], [])
    for view, failed in views.failed().items():
        assert failed == ({"node2"} if view == "exit_codes" else set(NODES)), view
    assert views.closed("stopped") == views.closed("ok") == set()
    stopped_by_us(views, {"node1", "node3"})


def stopped_by_us(views: Views, nodes: set[str]) -> None:
    """No view may call those nodes failed that the controller stopped while nobody knew where the failure began."""
    assert views.closed("unknown") == nodes and views.closed("failed") == set(NODES) - nodes
    line = next(line for line in views.closing if re.match("  unknown: (?!gate )", line))
    assert line.endswith(": stopped by the controller; on which node the failure began is undecided")
    verdicts = {each["name"]: (each["verdict"], each["why"]) for each in views.record["nodes"]}
    assert {name for name, row in verdicts.items() if row == ("unknown", "stopped by the controller")} == nodes
    cases = ElementTree.fromstring(views.report("junit")).findall(".//testcase[@classname='nodes']")
    assert {case.attrib["name"] for case in cases if case.find("error") is not None} == nodes
    markdown = views.report("markdown")
    assert re.search(r"^\| unknown \| `undecided` \| ", markdown, re.MULTILINE)
    assert ("| `failed` |" in markdown) == (nodes != set(NODES))


def test_a_hang_of_which_nothing_tells_the_origin_fails_no_node(views: Views) -> None:
    """All ranks wait for each other: no node is named, and none is called failed."""
    hung = Script(says=[STARTED], exits=(1e9, 0))
    views.end(node1=hung, node2=hung, node3=hung)
    found = views.record["diagnosis"]
    assert (found["confidence"], found["origin"], found["common"]) == ("undecided", [], [])
    stopped_by_us(views, set(NODES))


STARTED = (1.0, LINE.format(i=1))
LOST = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer [10.0.0.{}]:4242\n"
ENDINGS: dict[str, Script] = {
    "a rank is killed": Script(says=[STARTED, (3.0, TORCHRUN)], exits=(60, 1)),
    "the job's leader is killed": Script(says=[STARTED], exits=(3.0, -9)),
    "the node reboots": Script(says=[STARTED], more=after(3.0, watchdog=False, rebooted=True)),
    "the node's watchdog ends the job": Script(says=[STARTED], more=after(3.0, ending="the controller was silent")),
    "the node falls silent": Script(says=[STARTED], lost=[(3.0, 1e9)]),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_node_that_ends_a_running_job_is_named_alone(views: Views, ending: str) -> None:
    """The other nodes notice at once, and say that they lost a node."""
    waits = Script(says=[STARTED, (3.125, LOST.format(2))], exits=(3.5, 1))
    views.end(node1=WAITS, node2=ENDINGS[ending], node3=waits)
    assert views.record["diagnosis"]["origin"] == ["node2"]
    for view, failed in views.failed().items():
        assert failed == {"node2"} or view == "exit_codes", view
    assert views.closed("stopped") == {"node1", "node3"} and views.closed("ok") == set()
    assert not {"node1"} & set(re.findall(r"(node\d) ended with", views.gate("exit_codes")))


def test_an_interrupt_is_no_failure_of_any_node(views: Views) -> None:
    views.play.interrupted = lambda: "stopped by Ctrl-C" if views.play.turns.now > views.play.began + 5 else None
    views.end(node1=WAITS, node2=WAITS, node3=Script(says=[STARTED]))
    assert views.record["diagnosis"]["origin"] == views.record["diagnosis"]["among"] == []
    assert not any(views.failed().values())
    why = "stopped by the controller: the run was stopped from outside"
    assert f"  stopped: node1, node2, node3: {why}" in views.closing
    assert (
        views.closing[0].startswith(" (interrupted): the run was stopped from outside (")
        and views.record["verdict"] == "fail"
    )
