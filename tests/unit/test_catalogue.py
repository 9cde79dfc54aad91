"""The catalogue: each entry is found by its own lines, by nothing that looks alike, and in bounded time."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from shakedown import catalogue
from shakedown.catalogue import Entry, Log, entries, entry
from shakedown.catalogue.kernel import compiled, matcher
from shakedown.catalogue.model import pieces
from shakedown.logs.signatures import FailureScanner
from shakedown.node.kernel_verdict import LONGEST_MATCHED, Matcher
from tests.at_once import at_once
from tests.training_logs import rccl
from tests.unit.test_hostile_logs import TIMES, assert_linear, grown, repeats

LOGS: tuple[Log, ...] = ("kernel", "job", "rccl")
ALL = [each for log in LOGS for each in entries(log)]
_UNBOUNDED = re.compile(r"(?<!\\)[*+](?![^\[]*\])|\{\d*,\}")


def shown(each: Entry, text: str) -> list[str]:
    """Return the names of the entries that a piece of a log shows."""
    lines = text.splitlines(keepends=True)
    if each.log == "rccl":
        return [match.name for match in rccl(lines, rdma=True)]
    if each.log == "job":
        scanner = FailureScanner()
        if each.again:
            scanner.went_on()
        scanner.batch(lines)
        scanner.close()
        return [match.name for match in scanner.matches]
    found = [matcher().match(line.rstrip()) for line in lines]
    return [known["name"] for known in found if known]


def test_each_name_stands_for_one_entry() -> None:
    assert [name for name, count in Counter(each.name for each in ALL).items() if count > 1] == []
    assert entry("gpu_reset") is not None and entry("no_such_entry") is None
    with pytest.raises(KeyError):
        catalogue.advice("no such advice")


@at_once("each", ALL)
def test_the_lines_of_an_entry_lead_to_that_entry(each: Entry) -> None:
    for text in each.shows:
        names = shown(each, text)
        assert names and names[0 if each.log == "kernel" else -1] == each.name, text
    for text in each.shows_not:
        assert each.name not in shown(each, text), text


def test_a_symbol_that_is_missing_is_named_whatever_the_symbol_stands_for_elsewhere() -> None:
    missing = entry("symbol_missing")
    assert missing is not None
    names = {text for each in entries("job") for text in each.anchors if re.fullmatch(r"\w{5,}", text)}
    assert len(names) > 200
    for name in names:
        (found,) = shown(missing, f"ImportError: /opt/venv/lib/libx.so: undefined symbol: {name}\n")
        assert found == "symbol_missing", name


@at_once("each", ALL)
def test_an_entry_names_source_date_and_what_to_do(each: Entry) -> None:
    assert all(line.isascii() for line in each.shows[:1]), "the demo and the docs show the first line"
    assert re.search(r"\b20\d\d-\d\d(-\d\d)?\b", each.source), "a source has a date"
    assert all(len(max(form, key=len)) >= 3 for form in each.forms), "a short piece is in any line"
    for pattern in filter(None, (each.pattern, each.unless)):
        re.compile(pattern)
        assert not _UNBOUNDED.search(pattern), "a repetition has an upper bound"


def test_an_entry_has_a_text_and_one_of_a_job_may_have_places_instead() -> None:
    given = entry("model_refused").model_dump()  # type: ignore[union-attr]
    assert given["frames"] and not given["text"]
    for without in ({"frames": ()}, {"log": "kernel"}):
        with pytest.raises(ValueError, match="needs a text"):
            Entry.model_validate(given | without)


def test_an_entry_yields_to_entries_with_places() -> None:
    yielding = [name for each in entries("job") for name in each.yields]
    assert yielding and all(entry(name).frames for name in yielding)  # type: ignore[union-attr]


def test_a_text_has_literal_pieces_between_asterisks() -> None:
    assert pieces("ring * timeout") == ("ring ", " timeout")
    assert pieces(r"\*ERROR\* in *, at") == ("*ERROR* in ", ", at")


_OPTIONAL = ("pattern", "unless", "level")


def one(**fields: object) -> Matcher:
    given = {"name": "x", "severity": "error", "drivers": [], "forms": [["x"]], **dict.fromkeys(_OPTIONAL), **fields}
    return Matcher([given])


@pytest.mark.parametrize(
    ("line", "matches"),
    [
        ("nvme nvme0: gone", True),
        ("nvme0n1: gone", True),
        ("NVME0: GONE", True),
        ("xnvme: gone", False),
        ("nvmet: gone", False),
        ("gone, said nvme0", False),
        ("gone", False),
    ],
)
def test_a_driver_stands_as_a_word_before_the_text(line: str, matches: bool) -> None:
    assert bool(one(forms=[["gone"]], drivers=["nvme"]).match(line)) is matches


@pytest.mark.parametrize(
    ("line", "noise", "error"),
    [
        ("ast_mode: failed", True, True),
        ("[drm] ast_mode: failed", True, True),
        ("mlx5_fast_teardown: failed", False, True),
        ("fast_ast_mode: failed", False, True),
        ("last_status: ast_mode", True, True),
    ],
)
def test_a_text_of_noise_begins_a_word(line: str, noise: bool, error: bool) -> None:
    assert bool(one(severity="noise", forms=[["ast_"]]).match(line)) is noise
    assert bool(one(forms=[["ast_"]]).match(line)) is error


def test_a_list_of_modules_is_no_error_of_one_of_them() -> None:
    found = matcher().match("Modules linked in: rpcrdma lpfc amdgpu net_failover failover")
    assert found is not None and found["name"] == "noise_trace"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Kernel panic - not syncing: panic_on_warn set ...", "kernel_panic"),
        ("Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled", "kernel_panic"),
        ("snd_hda_intel 0000:c1:00.1: Unable to change power state, device inaccessible", "pcie_device_inaccessible"),
        ("ast 0000:03:00.0: [drm] *ERROR* AST DP init failed", "noise_usb_and_consoles"),
        ("BUG: unable to handle page fault for address: ffffb2c3c0a81000 (ast_mode_set)", "kernel_oops"),
    ],
)
def test_noise_does_not_cover_a_line_that_is_fatal_whoever_wrote_it(line: str, name: str) -> None:
    found = matcher().match(line)
    assert found is not None and found["name"] == name


def test_pieces_stand_in_their_order_and_do_not_overlap() -> None:
    matcher = one(forms=[["ring ", " timeout"]])
    assert matcher.match("ring gfx timeout") and not matcher.match("timeout of ring gfx")
    assert not one(forms=[["aba", "ab"]]).match("abab")


def test_a_record_of_lower_priority_is_left_out_where_the_entry_states_a_level() -> None:
    matcher = one(level=3)
    assert matcher.match("x", 3) and not matcher.match("x", 4) and matcher.match("x")


def test_the_first_entry_names_a_line_and_general_ones_come_last() -> None:
    assert [each.general for each in ALL if each.log == "kernel"] == sorted(
        each.general for each in ALL if each.log == "kernel"
    )


def test_the_node_finds_the_same_without_the_controllers_automaton() -> None:
    plain = Matcher(compiled())
    for each in entries("kernel"):
        for line in each.shows:
            found = plain.match(line)
            assert found is not None and found["name"] == each.name


@at_once("each", [entry for entry in entries("kernel") if repeats(entry.pattern, entry.unless)])
def test_an_entry_of_the_kernel_takes_time_in_proportion_to_the_line(each: Entry) -> None:
    (its,) = [one for one in compiled() if one["name"] == each.name]
    single = Matcher([its])
    heads = [f"{each.drivers[0]} " if each.drivers else ""]

    def work(size: int):  # type: ignore[no-untyped-def]
        # Of each anchor a third of the lines, another one than of the next anchor.
        texts = [line for at, text in enumerate(each.anchors) for line in grown(text, size)[at % 3 :: 3]]
        lines = [head + line for head in heads for line in texts]
        return lambda: [single.match(line) for line in lines]

    assert_linear(work, LONGEST_MATCHED // TIMES)  # no more of a message is looked at
