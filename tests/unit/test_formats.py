"""An output format is a module: its name is what --format takes, and what it shows decides which command offers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from shakedown.cli import main
from shakedown.cli.output import format_and_output
from shakedown.gates import Gate
from shakedown.report import formats
from shakedown.report.formats import Desired, Findings, Judged, Plans, Run, SiteLayer, shows
from shakedown.report.terminal import value_text
from shakedown.state.findings import Finding, Verdict
from tests.plans import small

FOUND = [
    Finding(name="thp", node="n1", verdict=Verdict.DRIFT, wanted="always", actual="[bold]never"),
    Finding(name="mtu.ens1", node="n1", verdict=Verdict.OK, wanted=9000, actual=9000),
    Finding(name="support", node="n2", verdict=Verdict.WARN, wanted="mi300x", actual="mi250x"),
]


@pytest.fixture
def registered() -> Iterator[dict[str, Any]]:
    formats.names(Findings)
    kept = {name: dict(kinds) for name, kinds in formats._FORMATS.items()}
    yield formats._FORMATS
    formats._FORMATS.clear()
    formats._FORMATS.update(kept)


@pytest.mark.parametrize(
    ("command", "kind", "offered"),
    [
        ("drift", Findings, ["table", "html", "json", "jsonl", "junit", "markdown", "prometheus"]),
        ("judge", Judged, ["table", "html", "json", "junit", "markdown", "prometheus"]),
        ("report", Run, ["table", "acceptance", "html", "json", "junit", "markdown", "prometheus"]),
        ("show", Desired, ["table", "json"]),
        ("plan", Plans, ["text", "json"]),
        ("import-cvs", SiteLayer, ["python", "json"]),
    ],
)
def test_a_command_offers_the_formats_that_show_its_document(command: str, kind: type, offered: list[str]) -> None:
    assert formats.names(kind) == offered
    said = CliRunner().invoke(main, [command, "--help"]).output
    assert f"[{'|'.join(offered)}]" in said
    refused = CliRunner().invoke(main, [command, "x", "--format", "tabel"])
    assert refused.exit_code == 2 and "'tabel' is not one of" in refused.output


def test_findings_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    document = Findings(Verdict.DRIFT, 2, FOUND)
    formats.write(document, "json")
    whole = json.loads(capsys.readouterr().out)
    assert (whole["verdict"], whole["nodes"]) == ("drift", 2)
    assert whole["counts"] == {"ok": 1, "warn": 1, "drift": 1, "fail": 0, "unknown": 0}
    formats.write(document, "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == whole["findings"]
    formats.write(document, "table")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["DRIFT", "thp", "n1"], ["WARN", "support", "n2"]]
    assert "[bold]never" in lines[1], "what a node says is no markup"
    assert lines[0].split("  ")[-1] == " 1 cause, 1 of advice"
    formats.write(Findings(Verdict.OK, 2, FOUND, show_all=True), "table")
    assert "mtu.ens1" in capsys.readouterr().out


def test_gates_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    document = Judged(Verdict.FAIL, [Gate(name="x", verdict=Verdict.FAIL, wanted=1, actual=2)], (), ["[red]one node"])
    formats.write(document, "json")
    assert json.loads(capsys.readouterr().out)["gates"][0]["name"] == "x"
    formats.write(document, "table")
    first, *_, note, last = capsys.readouterr().out.splitlines()
    assert (first, note) == ("verdict: fail: x failed; no node is named", "  [red]one node") and "--all" in last


def test_desired_values_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    document = Desired("n1", {"tuning.thp": ("always", "profile mi300x"), "gpu.count": (8, "group rack")})
    formats.write(document, "table")
    assert capsys.readouterr().out == 'tuning.thp  "always"  profile mi300x\ngpu.count   8         group rack\n'
    formats.write(document, "json")
    assert json.loads(capsys.readouterr().out)["desired"]["gpu.count"] == {"value": 8, "layer": "group rack"}
    formats.write(Desired("n1", {}), "table")
    assert capsys.readouterr().out == ""


def test_a_new_format_is_a_function_and_nothing_is_shown_twice(
    registered: object, capsys: pytest.CaptureFixture[str]
) -> None:
    @shows(Findings)
    def names(document: Findings) -> Iterator[str]:
        yield from (finding.name for finding in document.findings)

    assert formats.names(Findings)[-1] == "test_formats"
    formats.write(Findings(Verdict.OK, 1, FOUND), "test_formats")
    assert capsys.readouterr().out.split() == ["thp", "mtu.ens1", "support"]
    with pytest.raises(ValueError, match="test_formats shows Findings twice"):
        shows(Findings)(lambda document: iter(()))
    with pytest.raises(KeyError):
        formats.write(Plans({}), "jsonl")


def test_a_job_without_a_plan_has_the_problems_in_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    two = "the launch plan has 2 errors:\n  plan: nodes = 0: expected x\n  n1: y = 1: expected z"
    formats.write(Plans({}, {"together": two}), "json")
    assert json.loads(capsys.readouterr().out) == {"problems": ["plan: nodes = 0: expected x", "n1: y = 1: expected z"]}
    formats.write(Plans({"n2": small()}, {"n1": "no state"}), "json")
    both = json.loads(capsys.readouterr().out)
    assert both["n1"] == {"problems": ["no state"]} and both["n2"]["recipe"]


def test_equal_values_of_many_nodes_are_written_once() -> None:
    codes = {f"node{n:02}": 0 for n in range(1, 65)}
    assert value_text(codes) == "node[01-64]=0"
    assert value_text({**codes, "node07": -9}) == "node[01-06,08-64]=0, node07=-9"
    assert value_text({"a": 1, "b": 1}) == "a=1, b=1"


def test_a_dash_in_place_of_a_file_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of this name was written, and nothing printed."""
    monkeypatch.chdir(tmp_path)

    @click.command()
    @format_and_output(formats.Run)
    def command(form: str, output: Path | None) -> None:
        click.echo(f"{form} {output}")

    for words, shown in (["--output", "-"], "table None"), (["--output", "-", "--format", "json"], "json None"):
        assert CliRunner().invoke(command, words).stdout == f"{shown}\n"
    assert CliRunner().invoke(command, ["--output", "./a.md"]).stdout == "markdown a.md\n"
