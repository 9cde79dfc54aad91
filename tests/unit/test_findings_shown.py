"""A finding that is not ok shows what differs, wherever it is shown; and what a node says cannot do more than be read.

Every value of a healthy node is changed in every way that the state allows, and each finding that comes of it is
looked at in the table, in JSON, and in the line that a deploy fails a host with.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.console import Console

from shakedown import checks
from shakedown.catalogue.model import entries
from shakedown.checks import fleet
from shakedown.gates import Gate
from shakedown.node.setting import SETTINGS
from shakedown.report import outcomes, screen, terminal
from shakedown.report.formats import Findings
from shakedown.state.findings import Finding, FixedBy, Remedy, Verdict
from shakedown.state.node import NodeState
from tests.states import SETTING_VALUES, desired, healthy, image, unreadable, with_, with_health

DIGEST = "sha256:" + "a" * 64
LIBRARY = "/usr/local/lib/libbnxt_re-rdmav34.so"
CABLES = {"n": {f"ens{port}np0": [f"leaf{port}", "Ethernet1"] for port in range(2)}}
EVERYTHING = desired(
    tuning={
        **{name: False if SETTINGS[name].switch else value for name, value in SETTING_VALUES.items()},
        "groups": ["render", "rack"],
        "modules": ["nvme"],
        "sysctl": {"vm.swappiness": 10, "net.ipv4.conf.all.rp_filter": 2},
    },
    rdma={
        "provider": {"sha256": "ab" * 32},
        "pfc": [3],
        "dscp": {"26": 3},
        "congestion": {"enable_cc": 1},
        "cabling": CABLES,
    },
    images={"pinned": {"reference": f"rocm/x:1@{DIGEST}"}, "tagged": "rocm/y:2", "local": "localhost/z"},
    system={"disk_free": {"/": "100G", "/data": "1G"}, "memory": "1024G", "mpi": "installed", "drive_health": True},
    smoke={"recipe": "stanford-gpt", "image": "pinned", "environment": {"HSA_ENABLE_SDMA": "0"}},
)
EVERYTHING = EVERYTHING.model_copy(update={"gpu": EVERYTHING.gpu.model_copy(update={"rccl": "installed"})})
VERSIONS = {"rocm.version": "6.3.0", "pytorch.version": "2.4.0", "python.version": "3.12.9", "ubuntu.version": "24.04"}
HEALTHY = with_(
    with_health(healthy(gpus=2, hcas=2)),
    {
        "software": {"mpi": "Open MPI (/usr/bin/mpirun)", "rccl": "2.22.3 (/opt/rocm/lib/librccl.so.1)"},
        "containers.images": [
            {**image("rocm/x:1", DIGEST), "labels": VERSIONS},
            image("rocm/y:2", DIGEST),
            image("localhost/z:latest", DIGEST),
        ],
        "modules.loaded": [*healthy().modules.loaded, "nvme"],  # type: ignore[misc]
        "modules.persisted": [*healthy().modules.persisted, "nvme"],
        ("sysctl", "vm.swappiness"): {"running": "10", "persisted": "10"},
        "neighbours": [
            {"interface": port, "system": end[0], "chassis": "x", "port": end[1], "port_description": ""}
            for port, end in CABLES["n"].items()
        ],
        "drives": [{"name": "nvme0", "kind": "nvme", "model": "PM9A3", "serial": "S64", "health": {"media_errors": 0}}],
    },
)
Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value, of lists the first one's, and every list and mapping as a whole."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value[:1]):
            yield from leaves(item, (*path, index))


def variants(value: Any) -> list[Any]:
    """Other values for this one; those that the state refuses are no states."""
    found: list[Any] = [None, [], {}, "", "other", unreadable("missing", "/x"), unreadable("not permitted", "/x")]
    if isinstance(value, bool):
        found.append(not value)
    elif isinstance(value, int | float):
        found += [0 * value, value + 1, value - 1, value / 2, value * (1 - 1e-9), value // 2]
    elif isinstance(value, str):
        found += [value + "x", value.upper(), value[:-1]]
    elif isinstance(value, list) and value:
        found += [value[1:], value + value[:1]]
    elif isinstance(value, dict) and "unreadable" not in value:
        found.append(unreadable("timed out"))
    return found


def changed(changes: dict[Path, Any]) -> NodeState | None:
    try:
        return with_(HEALTHY, changes)
    except (ValidationError, KeyError, TypeError, IndexError):
        return None


def on_screen(finding: Finding, wide: bool = False) -> list[str]:
    """The lines of one finding, without the headline and the commands."""
    made = screen.table(Findings(finding.verdict, 1, [finding], inventory="rack.py", advises=False, wide=wide))
    return [line.plain for line in made][1:]


def shows_what_differs(finding: Finding) -> None:
    wanted, actual = terminal.shown_values(finding)
    assert wanted != actual, finding
    first, *others = on_screen(finding, wide=True)
    assert first.split()[:2] == [finding.verdict.upper(), finding.name.split()[0]]
    assert first.removesuffix(finding.verdict).split()[3:], "what differs stands in the line"
    assert finding.verdict != Verdict.UNKNOWN or finding.remedy is not None
    line = terminal.finding_line(finding)
    assert line.count("\n") == 0 and (f"wanted {wanted}, actual {actual}" in line or len(line) > 1000)
    assert finding.actual is not None or finding.evidence, "what is not known says why"
    if finding.remedy is not None:
        assert finding.remedy.text in line
        assert others or finding.verdict == Verdict.WARN or finding.fixed_by in (FixedBy.OPERATION, FixedBy.LOGIN)
    document = json.loads(finding.model_dump_json())
    now_or_later = [document["actual"], document["persisted"]]
    assert any(value != document["wanted"] and str(value) != str(document["wanted"]) for value in now_or_later)
    assert Finding.model_validate(document) == finding or isinstance(finding.actual, float)


CHANGES = [(path, value) for path, was in leaves(HEALTHY.model_dump()) for value in variants(was)]


def test_the_node_is_as_it_should_be() -> None:
    different = {finding.name for finding in checks.evaluate(EVERYTHING, HEALTHY, "n") if finding.verdict != Verdict.OK}
    fewer = {"gpu_count", "rdma_count", "kfd_topology", "dri"}  # two of each, to be quick
    assert different == fewer | {"groups.rack", "environment.HSA_ENABLE_SDMA"}


VERBS = set(
    re.findall(
        r"[\w-]+",
        "add bring build check choose compare correct decide disable drain enable find flash free give "
        "install keep label leave load log look make measure mount move plug power-cycle pull put raise read "
        "reboot reload remove repair replace report reseat run say see set start step switch take update use "
        "wait watch write ",
    )
)


def is_sentence(text: str) -> bool:
    """Whether a remedy begins with a verb, ends well, and has no verb where a noun belongs."""
    first, last = text.split()[0].lower().strip("`"), text.strip()[-1]
    broken = re.search(r"\b(the|a|an) (the|a|an|reseat|reboot the)\b|\s\s|[;,:]\s*$|  ", text)
    return first in VERBS and last not in ",;:-" and not broken and text.count("(") == text.count(")")


def together() -> list[dict[Path, Any]]:
    """All changes that the state bears, one of each part of the node at a time: most checks look at one part."""
    parts: dict[Any, list[tuple[Path, Any]]] = {}
    for path, value in CHANGES:
        if changed({path: value}):
            parts.setdefault(path[0], []).append((path, value))
    turns = max(map(len, parts.values()))
    return [dict(part[turn % len(part)] for part in parts.values()) for turn in range(turns)]


def test_every_finding_of_every_change_shows_what_differs() -> None:
    remedies: set[str] = set()
    seen: set[tuple[str, Verdict]] = set()
    usual: dict[str, Finding] = {}  # shown once: nearly every change leaves them as they are
    for changes in [{}, *together()]:
        state = changed(changes) if changes else HEALTHY
        assert state is not None
        for finding in checks.evaluate(EVERYTHING, state, "n"):
            if finding.verdict != Verdict.OK and usual.get(finding.name) != finding:
                if not changes:
                    usual[finding.name] = finding
                shows_what_differs(finding)
                remedies.add(finding.remedy.text if finding.remedy else f"{finding.name} has none")
                seen.add((finding.name.partition(".")[0], finding.verdict))
    assert {name for name, _ in seen} >= set(checks.checks()) - {"support"}, "every check was seen to object"
    assert len(seen) > 60
    lines = {entry.remedy for entry in entries("kernel") if entry.severity != "noise" and entry.remedy}
    assert len(lines) > 50 and [text for text in sorted(remedies | lines) if not is_sentence(text)] == []
    assert not is_sentence("compare the addresses; power-cycle the reseat the GPU")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(CHANGES), min_size=2, max_size=5))
def test_changes_together_show_what_differs_too(chosen: list[tuple[Path, Any]]) -> None:
    state = changed(dict(chosen))
    for finding in checks.evaluate(EVERYTHING, state, "n") if state else []:
        if finding.verdict != Verdict.OK:
            shows_what_differs(finding)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3))
def test_findings_across_nodes_show_what_differs(chosen: list[tuple[Path, Any]]) -> None:
    state = changed(dict(chosen))
    if state is None:
        return
    states = {"n1": HEALTHY, "n2": state, "n3": HEALTHY}
    offsets = {"n1": (0.0, 0.0), "n2": (40.0, 0.1), "n3": (0.0, 0.0)}
    for finding in fleet.outliers(states, {}, dict.fromkeys(states, EVERYTHING), offsets):
        if finding.verdict != Verdict.OK:
            shows_what_differs(finding)


def test_what_the_next_boot_would_change_is_named() -> None:
    state = with_(healthy(), {"boot_unit.settings": {}})
    found = {finding.name: finding for finding in checks.evaluate(desired(), state, "n")}
    finding = found["max_read_request"]
    assert terminal.shown_values(finding) == ("4096 bytes", "4096 bytes (next boot: not set)")
    other = with_(healthy(), {("boot_unit", "settings", "max_read_request.14e4"): "512"})
    finding = {finding.name: finding for finding in checks.evaluate(desired(), other, "n")}["max_read_request"]
    assert terminal.shown_values(finding)[1] == "4096 bytes (next boot: 512 bytes)"


@pytest.mark.parametrize(
    ("wanted", "actual", "unit", "shown"),
    [
        (107374182400, 107374182399, "bytes", ("107374182400", "107374182399")),
        (400.0, {"a": 399.99999}, "Gb/s", ("400 Gb/s", "a=399.99999 Gb/s")),
        (2**30, 2**29, "bytes", ("1.0GB", "512MB")),
        ("unlimited", "64", "KiB", ("unlimited", "64 KiB")),
        (9000, None, "bytes", ("9000 bytes", "-")),
    ],
)
def test_rounding_hides_no_difference(wanted: Any, actual: Any, unit: str, shown: tuple[str, str]) -> None:
    finding = Finding(name="x", node="n", verdict=Verdict.FAIL, wanted=wanted, actual=actual, unit=unit)
    assert terminal.shown_values(finding) == shown
    assert "wanted" in str(finding)


HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]ok[/]\r\nnode02  gpu_count  ok\u202e\x9b31m[/"


def test_what_a_node_says_is_one_line_of_printable_characters() -> None:
    finding = Finding(
        name=f"mtu.{HOSTILE}",
        node=HOSTILE,
        verdict=Verdict.FAIL,
        wanted={HOSTILE: HOSTILE},
        actual=[HOSTILE],
        persisted=HOSTILE,
        evidence=HOSTILE,
        remedy=Remedy(text=HOSTILE),
    )
    gate = Gate(
        name="counters", verdict=Verdict.FAIL, wanted=HOSTILE, actual=[HOSTILE], evidence=HOSTILE, remedy=HOSTILE
    )
    output = io.StringIO()
    console = Console(file=output, width=100_000, color_system=None)
    for line in screen.table(Findings(Verdict.FAIL, 1, [finding], inventory=HOSTILE, wide=True)):
        console.print(line, soft_wrap=True)
    console.print(outcomes.gates_table([gate]))
    assert len(output.getvalue().splitlines()) == 7, "headline, row, remedy, two commands, and a table"
    lines = [output.getvalue().replace("\n", ""), terminal.finding_line(finding), str(finding)]
    for text in lines:
        assert not any(character in text for character in "\x1b\x07\r\n\u202e\x9b"), text
        assert "[red]ok[/]" in text


def test_a_long_answer_is_cut_where_it_is_shown_and_whole_in_json() -> None:
    finding = Finding(name="x", node="n", verdict=Verdict.UNKNOWN, wanted=1, evidence="e" * 100_000)
    assert len(terminal.finding_line(finding)) <= 2 * terminal.CELL
    assert all(len(line) <= terminal.CELL for line in on_screen(finding))
    assert len(json.loads(finding.model_dump_json())["evidence"]) == 100_000


@pytest.mark.parametrize(("names", "wanted"), [("ab", "within 30 s of each other"), ("a", "within 30 s of each other")])
def test_a_phrase_with_a_number_in_it_has_its_unit_there_and_not_at_its_end(names: str, wanted: str) -> None:
    clocks = dict.fromkeys(names, (0.0, 0.01))
    found = list(fleet._clock_skew(clocks, {name: desired(system={"clock_skew_s": 30}) for name in names}))
    assert {terminal.shown_values(finding)[0] for finding in found} == {wanted}
    assert (
        terminal.value_text("below 5", "lanes") == "below 5 lanes" and terminal.value_text("5 (x)", "lanes") == "5 (x)"
    )
