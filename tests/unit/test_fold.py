"""Equal findings as one, over ranges of nodes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from shakedown.common.text import complaint
from shakedown.gates import Gate
from shakedown.hosts import folded, nodes
from shakedown.report import formats, terminal
from shakedown.report.causes import causes, fold_gates, without_name
from shakedown.runs.directory import RunNode, RunRecord
from shakedown.state.findings import Finding, Remedy, Verdict

RACKS = nodes("node[001-512]")


def rack(names: Sequence[str] = RACKS, odd: Sequence[str] = (), checks: int = 60) -> list[Finding]:
    """The findings of a healthy rack, where the check "c3" differs on the odd ones, each in its own way."""
    made = []
    for node in names:
        for check in range(checks):
            wrong = node in odd and check == 3
            made.append(
                Finding(
                    name=f"c{check}",
                    node=node,
                    verdict=Verdict.DRIFT if wrong else Verdict.OK,
                    wanted=8,
                    actual=1000 + int(node[-3:]) if wrong else 8,
                    evidence=f"of {node}",
                    remedy=Remedy(text="set it", operation="tuning.x") if wrong else None,
                )
            )
    return made


def test_names_are_ranges_each_once():
    assert folded(["node3", "node1", "node2", "node2", "head"]) == "head,node[1-3]"
    assert folded(nodes("node[001-127,129]")) == "node[001-127,129]"
    assert folded([f"10.0.{a}.{b}" for a in (0, 1) for b in range(1, 9)]) == "10.0.[0-1].[1-8]"
    assert folded([]) == ""


def test_a_name_is_never_read_as_a_range_that_it_is_not():
    assert folded(["node[001-512]", "node1", "a,b", "", "@all"]) == 'node1,"node[001-512]","a,b","",@all'
    assert folded(["n*", "n1!n2"]) == "n*,n1!n2"
    assert folded(["a1b2c3d4e5", "a1b2c3d4e6"]) == "a1b2c3d4e5,a1b2c3d4e6"  # too many numbers to be worth it


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{1,3}(\.r[0-9])?", fullmatch=True), max_size=40))
def test_a_range_names_each_of_its_nodes_and_no_other(names: list[str]):
    assert sorted(nodes(folded(names)) if names else []) == sorted(set(names))


def test_what_many_nodes_have_in_common_is_said_once():
    """Of the three odd nodes each has a value of its own, and one operation repairs all of them."""
    (cause,) = causes(rack(odd=("node128", "node300", "node512")))
    assert (cause.names, cause.nodes) == (("c3",), ("node128", "node300", "node512"))
    assert cause.text == "1128, wanted 8 and 2 other values"


def test_what_differs_in_anything_that_is_shown_stays_apart():
    base = Finding(name="thp", node="a", verdict=Verdict.DRIFT, wanted=1, actual=2, evidence="e")
    changed = [
        {"name": "x"},
        {"verdict": Verdict.FAIL},
        {"wanted": True},
        {"actual": 2.5},
        {"unit": "bytes"},
        {"remedy": Remedy(text="do it")},
    ]
    for change in changed:
        found = causes([base, base.model_copy(update={"node": "b", **change})])
        assert sorted(cause.nodes for cause in found) == [("a",), ("b",)], change
    (alike,) = causes([base, base, base.model_copy(update={"node": "b", "evidence": "f"})])
    assert alike.nodes == ("a", "b"), "the evidence is not shown"


def test_nodes_that_differ_in_their_own_names_alone_are_alike():
    """The commonest fault of all: a rack that cannot be reached."""
    found = [
        Finding(
            name="reachable",
            node=node,
            verdict=Verdict.FAIL,
            wanted="an answer",
            actual=f"ssh to {node}, port 22",
            remedy=Remedy(text=f"log in to {node} by hand"),
        )
        for node in nodes("node[01-40].r7")
    ]
    (one,) = causes(found)
    assert folded(one.nodes) == "node[01-40].r7"
    assert one.text.startswith("ssh to NODE, port 22") and one.remedy == "Log in to the node by hand."
    assert without_name("node1, node10, node1.r7, xnode1: node1", "node1") == "NODE, node10, node1.r7, xnode1: NODE"
    assert causes(found[:1])[0].remedy == "Log in to node01.r7 by hand."


def test_gates_of_the_job_over_all_nodes_are_not_those_of_a_node():
    together = Gate(name="loss", verdict=Verdict.OK)
    own = [together.model_copy(update={"node": node, "job": f"each-{node}"}) for node in ("n1", "n2")]
    assert [(one.nodes, one.where) for one in fold_gates([together, *own])] == [((), ""), (("n1", "n2"), "n[1-2]")]


def screen(document: object, capsys: pytest.CaptureFixture[str]) -> list[str]:
    formats.write(document, "table")
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(("columns", "odd"), [(80, 0), (80, 3), (200, 3)])
def test_the_answer_of_512_nodes_fits_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, odd: int
):
    monkeypatch.setenv("COLUMNS", str(columns))
    found = rack(odd=RACKS[7 : 7 + odd], checks=5)
    lines = screen(formats.Findings(Verdict.OK, len(RACKS), found), capsys)
    assert len(lines) <= 24 and max(map(len, lines)) <= columns
    assert lines[0].startswith("512 nodes, 5 checks each ") and lines[0].endswith("1 cause" if odd else "OK")
    assert [line.split()[:3] for line in lines if "c3" in line] == [["DRIFT", "c3", "node[008-010]"]] * bool(odd)


def test_everything_is_a_line_for_each_node(capsys: pytest.CaptureFixture[str]):
    found = rack(RACKS[:4], checks=2)
    assert len(screen(formats.Findings(Verdict.OK, 4, found, show_all=True), capsys)) == 1 + 8


def test_a_table_is_as_wide_as_columns_says_and_has_100_in_a_pipe(monkeypatch: pytest.MonkeyPatch):
    for columns, width in (("77", 77), ("7", terminal.NARROWEST), ("0", 100), ("x", 100), ("-3", 100), ("400", 400)):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal.console().width == terminal.console(file=io.StringIO()).width == width
    monkeypatch.delenv("COLUMNS")
    assert terminal.console().width == terminal.console(stderr=True).width == 100, "mail has no more"
    assert terminal.console(file=io.StringIO()).width == 100


NAMES = ["node001.rack-seven.site", "20261130T203232-a99cbf", "throughput_per_gpu", "primus-llama3.1-70b-bf16"]


@pytest.mark.parametrize("columns", [48, 60, 80, 100, 200])
def test_no_name_in_a_table_is_broken_at_any_width(columns: int) -> None:
    made = terminal.table("node", "run", "verdict", "what", "recipe", "why")
    many = ",".join(f"node{number:03}.rack-seven.site" for number in range(1, 9))
    made.add_row(NAMES[0], NAMES[1], "[red]fail[/]", NAMES[2], NAMES[3], f"on {many}, since a rank was killed there")
    made.add_row("other", "-", "ok", "-", "", "passed")
    output = io.StringIO()
    out = terminal.console(file=output)
    out.width = columns
    out.print(made)
    text = output.getvalue()
    assert max(map(len, text.splitlines())) <= columns
    for name in [*NAMES, *many.split(",")]:
        assert re.search(rf"(?<!\S|,){re.escape(name)}(?=[\s,])", f" {text}") or f",{name}" in text, name
    assert ("run: 2026" in text) == (columns < 200), "a row without room is a paragraph"
    assert "fail" in text and "verdict: " not in text and "-\n" not in text.replace(" ", "")


def test_a_line_of_evidence_is_folded_between_words() -> None:
    line = f"n1: cmdline: drift: wanted {'a=b ' * 40}, on {','.join(NAMES * 3)}"
    output = io.StringIO()
    terminal.console(file=output).print(terminal.Line(line))
    first, *others = output.getvalue().splitlines()
    assert others and len(first) <= 100 and all(len(text) <= 100 and text.startswith("    ") for text in others)
    assert all(f"{name}," in output.getvalue() for name in NAMES)


def test_a_refusal_is_folded_and_its_path_and_command_s_words_are_whole() -> None:
    path = f"/mnt/{'x' * 60}/{'y' * 60}/a,b/run.json"
    lines = complaint(f"{path}: there is none: {'say more ' * 20}").split("\n")
    assert f"{path}:" in lines[0] + lines[1] and max(map(len, lines[2:])) <= 100 and len(lines) > 3
    named = complaint(f"no launch plan for {','.join(NAMES * 5)}").split("\n")
    assert max(map(len, named)) <= 100 and all(f"{name}, " in " ".join(named) for name in NAMES[1:])
    assert max(map(len, complaint(",".join([path.replace(",", "")] * 3)).split("\n"))) < 2 * len(path)


def test_a_run_of_many_nodes_names_those_that_are_alike_once(capsys: pytest.CaptureFixture[str]):
    record = RunRecord(run_id="r", started_at="t", inventory="i.py", desired_digest="0")
    for rank, name in enumerate(RACKS):
        bad = name == "node100"
        record.nodes.append(
            RunNode(name=name, verdict="fail" if bad else "ok", part="trained", node_rank=rank, notes=["a note"])
        )
        record.gates += [Gate(name=gate, verdict="fail" if bad else "ok", node=name, job=name) for gate in "ab"]
    text = "\n".join(lines := screen(formats.Run(record), capsys))
    assert "ok: node[001-099,101-512]" in text and "on node100" in text and len(lines) < 20
    assert len(screen(formats.Run(record, show_all=True), capsys)) > 4 * 512


@pytest.mark.parametrize("shape", ["node{:03d}.rack7.example.org", "n{}", "10.0.3.{}", "r{:02d}n{:02d}"])
def test_many_names_are_the_ranges_that_clustershell_writes(shape: str):
    names = [shape.format(number, number % 7) for number in range(5, 400) if number % 11]
    assert folded(names) == str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    assert folded(reversed(names)) == folded(names)
