"""What is shown of findings, gates and runs: as it is, whatever stands in it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from shakedown.gates import Gate
from shakedown.report import outcomes, terminal
from shakedown.runs.directory import RunNode, RunRecord, now
from shakedown.state.findings import Finding, Verdict

HOSTILE = [
    "[/] [bold]x[/bold] [/red]",
    "ends with a backslash \\",
    "[link=file:///etc/passwd]x[/link]",
    "\\[/]",
]


def shown(*parts: object) -> str:
    output = io.StringIO()
    console = Console(file=output, force_terminal=False, width=10_000, highlight=False)
    for part in parts:
        console.print(part)
    return output.getvalue()


def record(text: str) -> RunRecord:
    made = RunRecord(run_id="r", started_at=now(), inventory=text, desired_digest="0", ended_by=f"error {text}")
    made.nodes = [
        RunNode(name=f"name {text}", verdict=Verdict.OK, part="excluded", why=f"why {text}", notes=[f"note {text}"])
    ]
    made.nodes[0].changes = [f"change {text}"]
    made.findings = [
        Finding(
            name="thp",
            node=f"node {text}",
            verdict=Verdict.DRIFT,
            wanted=text,
            actual=f"is {text}",
            evidence=f"by {text}",
        )
    ]
    made.gates = [Gate(name="loss_finite", verdict=Verdict.FAIL, evidence=f"saw {text}", remedy=f"do {text}")]
    return made


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_is_shown_as_it_is(text: str) -> None:
    output = shown(*outcomes.report(record(text), show_all=True))
    for what in ("name", "why", "note", "change", "node", "is", "by", "saw", "do", "error"):
        assert f"{what} {text}" in output
    screen = " ".join(shown(*outcomes.report(record(text))).split())
    for what in ("name", "why", "change", "saw", "Do", "error"):
        assert f"{what} {text}" in screen
    assert output.count(text) >= 11  # and the inventory, and the wanted value


def test_text_from_outside_does_not_move_the_terminal() -> None:
    output = shown(*outcomes.report(record("a\x1b[2Jb\x9b1mc\x07\rd\x00")))
    assert not set(output) & set("\x1b\x9b\x07\r\x00")
    assert "saw ab" in output


def test_no_way_to_print_moves_the_terminal() -> None:
    """A text of a run from elsewhere that no caller made printable: in a line, in a table, with a colour or without."""
    text = "a\x1b[2Jb\x9b1mc\x07\rd\x00e\u202ef\u200bg\x1b]0;title\x07h"
    out = io.StringIO()
    console, table = terminal.console(file=out), terminal.table("what", "why")
    table.add_row(Text(text), Text(text, style="red"))
    narrow = terminal.table(*map(str, range(40)))
    narrow.add_row(*[Text(text)] * 40)
    for part in (text, Text(text), terminal.Line(f"{text} " * 40), table, narrow):
        console.print(part, markup=False)
    assert not set(out.getvalue()) & {*"\x1b\x9b\x07\r\x00\u202e\u200b"}
    assert out.getvalue().count("d\ufffde\ufffdf\ufffdg") >= 80
