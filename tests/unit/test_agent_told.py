"""What the agents have told, as a drift check takes it: by the desired state of now, and no older than it may be."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shakedown.agent import report
from shakedown.node import records
from shakedown.node.agent import run
from shakedown.state.findings import Finding, Verdict, worst
from shakedown.transport.program import command, program
from tests.sent_scripts import NOBODY
from tests.unit.test_agent import Node, needs_root
from tests.unit.test_agent import program as agent_program
from tests.unit.test_agent_remedies import Tuned

assert agent_program  # a fixture

RECORDS = Path(records.__file__)
PROGRAM = "f" * 64  # as test_agent compiles


@pytest.fixture(scope="module", name="verdict")
def told_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Node, dict[str, Any]]:
    """An agent's own verdict, and who told it."""
    from tests.agents import unpacked

    node = Tuned(unpacked(tmp_path_factory.mktemp("program")), tmp_path_factory.mktemp("node"))
    (node.tree / "proc/sys/kernel/numa_balancing").write_text("1\n")
    assert node.check("--root", str(node.tree)).returncode == 0
    return node, node.told()


def taken(node: Node, verdict: Any, *, age: float = 60, problem: str = "", name: str = "node01") -> list[Finding]:
    at = verdict["at"] if isinstance(verdict, dict) else 0
    text = verdict if isinstance(verdict, str) else json.dumps(verdict)
    answer = {"now": at + age, "problem": problem, "verdict": text}
    return report.findings(name, node.wanted(agent={"remedy": "safe"}), answer, PROGRAM, at + age)


def test_a_verdict_of_now_counts_with_all_its_findings(verdict: tuple[Node, dict[str, Any]]) -> None:
    node, said = verdict
    agent, *found = taken(node, said)
    assert (agent.name, agent.verdict, agent.actual) == ("agent", Verdict.OK, "60 s old")
    assert "put back numa_balancing: numa_balancing 1 -> 0" in agent.evidence
    assert [each.name for each in found] == [each["name"] for each in said["findings"]] and len(found) > 40
    assert worst([each.verdict for each in found]) == said["verdict"]


@pytest.mark.parametrize(
    ("changes", "age", "words"),
    [
        ({}, 100_000, "stale: 100000 s old"),
        ({}, -100, "from the future"),
        ({"why": "OSError: /etc/shakedown/agent.json", "verdict": "unknown"}, 60, "could not check"),
        ({"why": "OSError: /etc/shakedown/agent.json", "verdict": "ok"}, 60, "no sense"),
        ({"verdict": "fail"}, 60, "no sense"),
        ({"verdict": "fail", "findings": []}, 60, "no sense"),
        ({"verdict": "ok", "findings": []}, 60, "no sense"),
        ({"verdict": "unknown", "findings": []}, 60, "no sense"),
        ({"desired": "0" * 64}, 60, "another desired state (000000000000)"),
        ({"home": "/somewhere/else"}, 60, ""),
        ({"program": "0" * 64}, 60, "another version of shakedown"),
        ({"node": "node02"}, 60, "compiled for node02"),
        ({"at": "now"}, 60, "no sense"),
        ({"at": float("nan")}, 60, "no sense"),
        ({"verdict": "fine"}, 60, "no sense"),
        ({"more": 1}, 60, "no sense"),
        ({"findings": [{"name": "x"}]}, 60, "no sense"),
    ],
)
def test_no_other_verdict_is_ever_ok(
    verdict: tuple[Node, dict[str, Any]], changes: dict[str, Any], age: float, words: str
) -> None:
    node, said = verdict
    changed = {**said, **changes}
    answer = {"now": said["at"] + age, "problem": "", "verdict": json.dumps(changed)}
    agent, *others = report.findings("node01", node.wanted(), answer, PROGRAM, said["at"] + age)
    if not words:
        assert agent.verdict == Verdict.OK, "nothing of this desired state is below the home"
        return
    assert agent.verdict == Verdict.UNKNOWN and words in str(agent.actual) and agent.remedy
    assert not others or changes.keys() & {"desired", "program", "node"}, "a finding that is too old is none"


@pytest.mark.parametrize("off", [-7200, -61, 61, 7200])
def test_a_node_whose_clock_is_off_does_not_tell_the_age_of_its_verdict(
    verdict: tuple[Node, dict[str, Any]], off: float
) -> None:
    """A clock that was set back makes any verdict look new."""
    node, said = verdict
    answer = {"now": said["at"] + 1, "problem": "", "verdict": json.dumps(said)}
    (agent,) = report.findings("node01", node.wanted(), answer, PROGRAM, said["at"] + 1 - off)
    assert agent.verdict == Verdict.UNKNOWN and f"{off:+} s off" in str(agent.actual) and agent.remedy


@pytest.mark.parametrize("text", ["", "{", "[" * 5000, "null", "x" * 100])
def test_what_makes_no_sense_is_unknown(verdict: tuple[Node, dict[str, Any]], text: str) -> None:
    (agent,) = taken(verdict[0], text)
    assert agent.verdict == Verdict.UNKNOWN and "no sense" in str(agent.actual)


def test_a_node_speaks_for_itself_alone_and_without_control_characters(verdict: tuple[Node, dict[str, Any]]) -> None:
    node, said = verdict
    finding = {"name": "log\nok: x", "node": "node99", "verdict": "fail", "evidence": "\x1b[2Jgone\u202e"}
    _, found = taken(node, {**said, "verdict": "fail", "findings": [finding]})
    assert found.node == "node01" and found.name == "log ok: x"
    assert "\x1b" not in found.evidence and "\u202e" not in found.evidence


def test_what_users_of_a_node_choose_is_no_line_of_its_own_in_the_journal(verdict: tuple[Node, dict[str, Any]]) -> None:
    chosen = "x\n<0>all is lost\x1b[2J"
    remedied = [{"finding": "a", "did": "", "left": chosen}, {"finding": "b", "did": chosen, "left": ""}]
    said = {**verdict[1], "findings": [], "said": {}, "remedied": remedied, "not_told": [chosen], "why": chosen}
    lines = list(run.journal(said))
    assert len(lines) == 4 and not any("\n" in line or "\x1b" in line for line in lines)
    assert [line[:3] for line in lines[:3]] == ["<5>", "<5>", "<4>"]


def test_no_verdict_says_what_to_do(verdict: tuple[Node, dict[str, Any]]) -> None:
    (agent,) = taken(verdict[0], "", problem="there is no /var/lib/shakedown")
    assert agent.verdict == Verdict.UNKNOWN and "/var/lib/shakedown" in agent.evidence
    assert agent.remedy and "deploy/agent.py" in agent.remedy.text


def asked(folder: Path) -> dict[str, Any]:
    """What a node says, asked as the controller asks."""
    shell = command(f"{program(RECORDS)}\nshow_verdict(sys.argv[1])", str(folder))
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_last_verdict_is_read_as_it_stands(tmp_path: Path) -> None:
    assert "there is no" in asked(tmp_path / "none")["problem"]
    assert "no verdict.json" in asked(tmp_path)["problem"]
    (tmp_path / "verdict.json").write_text('{"a": 1}\n')
    found = asked(tmp_path)
    assert found["verdict"] == '{"a": 1}\n' and not found["problem"] and found["now"] > 1e9


@needs_root
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_another_user_could_have_written_is_no_verdict(tmp_path: Path, what: str) -> None:
    file = tmp_path / "verdict.json"
    file.write_text("{}")
    if what == "link":
        file.rename(tmp_path / "other")
        file.symlink_to("other")
    else:
        os.chown(file if what == "file" else tmp_path, NOBODY, NOBODY)
    found = asked(tmp_path)
    assert found["problem"] and not found["verdict"]
