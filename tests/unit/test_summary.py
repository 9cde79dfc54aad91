"""How a run ended, in words."""

from __future__ import annotations

import pytest

from shakedown.report.summary import NAMED, WHY, HostOutcome, Summary, summary_lines
from shakedown.state.findings import Verdict


def said(**given: object) -> list[str]:
    return list(summary_lines(Summary(verdict=Verdict.FAIL, **given)))  # type: ignore[arg-type]


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
    assert sum("new host key of" in line for line in lines) == NAMED and "of 32 more nodes" in lines[-2]


def test_what_was_changed_and_how_far() -> None:
    lines = said(changed={"a": ["thp", "mtu"], "b": [], "c": ["mtu"]}, unfinished={"a": "mtu", "b": "mtu"})
    assert lines[1:-1] == ["changed: a: thp, mtu (not to its end)", "changed: c: mtu"]
    assert said(dry=True)[1] == "changed: nothing (dry run)"
    assert said(dry=True, changed={"a": ["mtu"]})[1] == "changed: a: mtu"


def test_why_it_ended_early_and_what_else_a_person_must_know() -> None:
    lines = said(
        interrupted=True, error="OSError: disk full", gates=["loss_finite"], new_keys={"a": "ssh-rsa SHA256:x"},
        evidence="runs/1",
    )  # fmt: skip
    assert lines == [
        "verdict: fail (interrupted)",
        "  ended by OSError: disk full",
        "  gates that did not hold: loss_finite",
        "changed: nothing",
        "new host key of a, compare it: ssh-rsa SHA256:x",
        "evidence: runs/1",
    ]


def test_nothing_of_it_reaches_the_terminal_as_it_came() -> None:
    bad = "\x1b[2Jx\r\n\u202e"
    lines = said(
        outcomes=[HostOutcome(bad, "failed", bad * WHY)],
        changed={bad: [bad]},
        new_keys={bad: bad},
        gates=[bad],
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
    common = "3 of 3 nodes: check the inventory or the image"
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
