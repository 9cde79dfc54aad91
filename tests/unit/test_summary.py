"""How a run ended, in words."""

from __future__ import annotations

import pytest

from shakedown.report.summary import KEYS, REASONS, WHY, HostOutcome, Summary, fitted, summary_lines
from shakedown.state.findings import Verdict


def said(**given: object) -> list[str]:
    return list(summary_lines(Summary(verdict=Verdict.FAIL, **given)))  # type: ignore[arg-type]


def test_a_narrow_terminal_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = "  excluded: node46: failed before the job: kernel_log, dri, gpu_count, kfd_topology, fleet.gpu_count"
    lines = list(fitted([text, "report: runs/1"]))
    assert max(map(len, lines)) <= 80 and " ".join(" ".join(lines[:-1]).split()) == text.strip()
    monkeypatch.setenv("COLUMNS", "300")
    assert list(fitted([text, "report: runs/1"])) == [text, "report: runs/1"]


def test_a_run_of_which_there_is_nothing_to_say() -> None:
    assert list(summary_lines(Summary(verdict=Verdict.OK))) == [
        "verdict: ok",
        "changed: nothing",
        "evidence: none was kept",
    ]


def test_the_worst_comes_first_and_what_is_alike_is_said_once() -> None:
    outcomes = [
        HostOutcome("a", "ok"),
        HostOutcome("b", "drift", "mtu"),
        HostOutcome("c", "failed", 'in "mtu": no answer'),
        HostOutcome("d", "drift", "mtu"),
        HostOutcome("e", "drift", "thp"),
        HostOutcome("f", "unreached", "refused"),
        HostOutcome("g", "interrupted", 'in "mtu"'),
        HostOutcome("h", "excluded", "not in its desired state"),
        HostOutcome("i", "unknown", "clock"),
        HostOutcome("j", "fail", "gpu_count"),
    ]
    assert said(outcomes=outcomes)[1:-2] == [
        '  failed: c: in "mtu": no answer',
        '  interrupted: g: in "mtu"',
        "  unreached: f: refused",
        "  excluded: h: not in its desired state",
        "  fail: j: gpu_count",
        "  unknown: i: clock",
        "  drift: b, d: mtu",
        "  drift: e: thp",
        "  ok: a",
    ]


def test_warnings_are_counted_beside_the_verdict() -> None:
    lines = list(
        summary_lines(Summary(verdict=Verdict.OK, warnings={"a": ["support", "environment.X"], "b": ["support"]}))
    )
    assert lines[:2] == ["verdict: ok", "  warnings, beside the verdict: 3 (support: a, b; environment.X: a)"]


def test_what_is_lacking_besides_comes_first() -> None:
    assert said(lacking=["1 of 2"], outcomes=[HostOutcome("a", "ok")])[:3] == ["verdict: fail", "  1 of 2", "  ok: a"]


@pytest.mark.parametrize(("count", "shown"), [(3, "n0, n1, n2"), (9, "n[0-8]"), (512, "n[0-511]")])
def test_many_alike_are_a_range(count: int, shown: str) -> None:
    line = said(outcomes=[HostOutcome(f"n{number}", "ok") for number in range(count)])[1]
    assert line == f"  ok: {shown}"


def test_of_many_that_are_no_range_some_are_named() -> None:
    names = [f"n{number * number * 7}" for number in range(200)]
    assert said(outcomes=[HostOutcome(name, "ok") for name in names])[1].endswith(f"n{49 * 7} and 192 more")


def test_what_changed_alike_and_keys_of_many_nodes_are_few_lines() -> None:
    names = [f"n{number}" for number in range(40)]
    lines = said(changed={name: ["thp"] for name in names}, new_keys=dict.fromkeys(names, "ssh-rsa x"))
    assert lines[1] == "changed: n[0-39]: thp"
    assert lines[-2] == "40 new host keys, compare them (ssh-keygen -lf known_hosts): n[0-39]"
    lines = said(new_keys=dict.fromkeys(names[:KEYS], "ssh-rsa x"))
    assert [line for line in lines if line.startswith("new host key of n")] == lines[-1 - KEYS : -1]


def test_what_was_changed_and_how_far() -> None:
    lines = said(changed={"a": ["thp", "mtu"], "b": [], "c": ["mtu"]}, unfinished={"a": "mtu", "b": "mtu"})
    assert lines[1:-1] == ["changed: a: thp, mtu (not to its end)", "changed: c: mtu"]
    assert said(dry=True)[1] == "changed: nothing (dry run)"
    assert said(dry=True, changed={"a": ["mtu"]})[1] == "changed: a: mtu"


def test_why_it_ended_early_and_what_else_a_person_must_know() -> None:
    lines = said(
        interrupted=True,
        error="OSError: disk full",
        gates=[["  fail: gate loss_finite: NaN", "    Do it."]],
        new_keys={"a": "ssh-rsa SHA256:x"},
        evidence="runs/1",
    )
    assert lines == [
        "verdict: fail (interrupted)",
        "  ended by OSError: disk full",
        "  fail: gate loss_finite: NaN",
        "    Do it.",
        "changed: nothing",
        "new host key of a, compare it: ssh-rsa SHA256:x",
        "evidence: runs/1, help: docs/failed.md",
    ]


def test_nothing_of_it_reaches_the_terminal_as_it_came() -> None:
    bad = "\x1b[2Jx\r\n\u202e"
    lines = said(
        outcomes=[HostOutcome(bad, "failed", bad * WHY)],
        changed={bad: [bad]},
        new_keys={bad: bad},
        lacking=[bad],
        error=bad,
    )
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < WHY + 100


def test_what_a_rollback_restored_is_said_once_for_all_nodes() -> None:
    names = [f"n{number}" for number in range(40)]
    restored = {name: ["numa_balancing: 0 -> 1", *(["acs: x -> 1"] if name == "n3" else [])] for name in names}
    lines = said(restored=restored)
    assert lines[-3:-1] == ["restored: n[0-39]: numa_balancing: 0 -> 1", "restored: n3: acs: x -> 1"]
    assert said(restored=restored, dry=True)[-2].startswith("would restore: n3")


def test_what_most_nodes_share_is_said_to_be_common() -> None:
    refused = [HostOutcome(f"n{n}", "unreached", f"Unable to connect to port 22 on 10.0.0.{n}") for n in (1, 2, 3)]
    common = "3 of 3 nodes: check the inventory or this machine's network"
    _verdict, line, *_ = summary_lines(Summary(Verdict.FAIL, refused))
    assert line == f"  unreached: n1, n2, n3: Unable to connect to port 22 on 10.0.0.1 ({common})"
    one = [refused[0], HostOutcome("n2", "ok"), HostOutcome("n3", "ok")]
    assert (
        list(summary_lines(Summary(Verdict.FAIL, one)))[1]
        == "  unreached: n1: Unable to connect to port 22 on 10.0.0.1"
    )
    pulls = [HostOutcome(f"n{n}", "failed", 'in "Image": no such tag') for n in (1, 2)]
    failed = next(each for each in summary_lines(Summary(Verdict.FAIL, [*pulls, one[1]])) if "failed" in each)
    assert failed == '  failed: n1, n2: in "Image": no such tag (2 of 3 nodes: check the inventory or the image)'


def test_the_next_step_stands_behind_the_sentence_that_matters() -> None:
    gates, outcomes = [["  fail: gate a: x", "    Do it."], ["  fail: gate b: x"]], [HostOutcome("n1", "failed", "x")]
    steps = ["  next: shakedown run i.py"]
    assert said(next_steps=steps, gates=gates, outcomes=outcomes)[1:5] == [*gates[0], *steps, *gates[1]]
    assert said(next_steps=steps, outcomes=outcomes)[1:3] == ["  failed: n1: x", *steps]
    found = said(next_steps=steps, gates=gates, headline="n1 died", grounds=["  its line"])
    assert found[:3] == ["verdict: fail: n1 died", *steps, "  its line"]
    assert said(next_steps=steps, gates=gates, headline="a failed")[:2] == ["verdict: fail: a failed", gates[0][0]]


def test_reasons_that_differ_from_node_to_node_are_a_few_lines() -> None:
    outcomes = [HostOutcome(f"n{number:02d}", "failed", f"error {number:02d}") for number in range(64)]
    lines = said(outcomes=outcomes, changed={f"n{number:02d}": [f"x{number}"] for number in range(64)})
    assert sum(line.startswith("  failed: ") for line in lines) == REASONS
    assert f"  each for a reason of its own: n[{REASONS:02d}-63]" in lines
    assert f"changed: n[{REASONS:02d}-63]: each something else" in lines


def test_a_screen_takes_lines_between_words_and_keeps_the_last_one() -> None:
    name = "node01.rack7.example.org"
    lines = list(fitted([f"  failed: {name}: {'word ' * 90}", f"x {'y' * 300}", *["z"] * 90, "report: runs/1"]))
    assert len(lines) == 25 and max(map(len, lines)) <= 100
    assert lines[0].startswith(f"  failed: {name}: word") and lines[3].endswith(" ...")
    assert lines[-1] == "report: runs/1" and lines[-2] == "  and 72 more lines in the report"
    assert list(fitted(["a", "word " * 30, "c", "report: runs/1"], most=3)) == [
        "a",
        "  and 3 more lines in the report",
        "report: runs/1",
    ]  # no line ends in its middle
    long = f"report: runs/{'1' * 80}, evidence: shakedown report -v, help: docs/failed.md"
    lines = list(fitted([*["z"] * 90, long]))
    assert lines[-3:] == ["  and 68 more lines in the report", *long.replace(", evi", "\nevi").split("\n")]
    assert len(lines) == 25
