"""docs/failed.md, the page to which the last line of a failed run leads: one story, with commands that exist. The lab
plays it (tests/lab/test_failed_page.py); what is SIMULATED is played here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.report.failure import PAGE
from tests.docs import shell
from tests.docs.blocks import ROOT
from tests.docs.transcripts import RUN, first_wrong, transcripts

TEXT = (ROOT / PAGE).read_text("utf-8")
PLAYED = transcripts(TEXT, "lab transcript")


def test_one_node_and_one_run_from_the_first_red_line_to_the_ticket() -> None:
    assert [command.split()[1] for command, _ in PLAYED] == ["run", "report", "report", "show", "judge", "ticket"]
    assert {command: why for command, _ in PLAYED if (why := shell.wrong(shlex.split(command)))} == {}
    lines = [line for _, shown in PLAYED for line in shown]
    assert len({run for line in lines for run in RUN.findall(line)}) == 1
    named = [line for line in lines if line.startswith(("verdict: ", "diagnosis: ", "# ", "node"))]
    assert len(named) == 7 and all(set(re.findall(r"node\d", line)) == {"node2"} for line in named)
    assert max(map(len, PLAYED[0][1])) <= 100


def test_the_last_line_of_the_failed_run_leads_to_the_page() -> None:
    last = PLAYED[0][1][-1]
    assert last.startswith("report: ") and last.endswith(f", help: {PAGE}")


def test_what_is_simulated_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((command, lines),) = transcripts(TEXT, "simulated transcript")
    assert first_wrong(lines, CliRunner().invoke(main, shlex.split(command)[1:]).output) == ""


def test_a_line_that_is_not_there_is_seen() -> None:
    output = "one 17\ntwo\nthree   of\n  four\n"
    assert first_wrong(["one 3", "...", "three  ..."], output) == ""
    assert first_wrong(["one 3", "three  of"], output) == "three  of", "a line is left out without a word"
    assert first_wrong(["...", "two", "one 17"], output) == "one 17", "another order"
    assert first_wrong(["four"], output) == "four"
