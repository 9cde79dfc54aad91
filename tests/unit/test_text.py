"""Text from outside: nothing of it moves a cursor, leaves a folder or ends a run."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shakedown.common.text import (
    file_name,
    in_unit,
    incoming,
    load_json,
    load_sound,
    printable,
    ranges,
    sound,
    strip_escapes,
)
from shakedown.node.assets.words import clean
from shakedown.report.terminal import value_text


@given(st.text())
def test_printable_text_holds_no_control_character(text: str) -> None:
    assert not [c for c in printable(text) if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u061c\u202e\u2028\u2066"]
    assert [c for c in printable(text, lines=True) if ord(c) < 32] in (
        [],
        ["\n"] * text.replace("\r\n", "\n").count("\n"),
    )


def test_nothing_that_is_invisible_passes() -> None:
    formats = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cf", "Cs", "Zl", "Zp")]
    for letter in [*formats, *"\u034f\u115f\u1160\u17b4\u180b\u3164\uffa0\ufe0f\U000e0100"]:
        assert printable(f"node{letter}01") == incoming(f"node{letter}01") == "node\ufffd01", hex(ord(letter))
        assert letter not in clean(f"node{letter}01"), hex(ord(letter))


def test_escape_sequences_go_whole() -> None:
    assert printable("\x1b[31mred\x1b[0m \x1b]0;title\x07now \x1b(") == "red now \ufffd("
    assert strip_escapes("plain \x1b(B\x1b7\x1b=\x9b31mtext\x1b8") == "plain text"
    assert "death" in printable("\x1b]0;\ndeath\n\x07", lines=True), "a title ends on its line"


def test_a_limit_bounds_what_is_shown_and_what_it_costs() -> None:
    began = time.perf_counter()
    assert printable("\x1b[" + "1" * 50_000_000, 20) == printable("\x1b[" + "1" * 200, 20)
    assert len(printable("x" * 100, 20)) == 20
    assert time.perf_counter() - began < 5


@given(st.text(), st.text())
def test_no_two_names_share_a_file(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


@given(st.text())
def test_a_name_is_one_visible_component(name: str) -> None:
    made = file_name(name)
    assert Path(made).name == made and not made.startswith((".", "-")) and len(made) < 120


def test_safe_names_stay() -> None:
    for name in ("node01.rack7", "@local", "node2_x"):
        assert file_name(name) == name
    for name in ("../evil", "node2 x", ".hidden", "a/b", "", "x" * 200, "-rf"):
        assert file_name(name) != name


def test_json_is_bounded() -> None:
    assert load_json('{"a": 1}', 100) == {"a": 1}
    for text in ("[" * 100_000, '{"a":' * 100_000, "{", '"' + "x" * 200_000 + '"'):
        with pytest.raises(ValueError):
            load_json(text, 100_000)
    with pytest.raises(ValueError, match="nested"):
        load_json("[" * 100_000, 1 << 20)


def test_a_number_beyond_64_bits_is_refused_also_in_a_plain_document() -> None:
    assert load_sound(f'{{"a": {1 << 64}}}', 100) == {"a": 1 << 64}
    for digits in (str((1 << 64) + 1), f"-{1 << 65}", "9" * 60, "1e30"):
        with pytest.raises(ValueError, match="a: not a number of 64 bits"):
            load_sound(f'{{"a": {digits}}}', 100)


def test_numbers_with_their_noun() -> None:
    assert [ranges(numbers, "line") for numbers in ([3], [3, 4], [3, 3], [1, 9], [])] == [
        "line 3", "lines 3-4", "line 3", "lines 1, 9", ""
    ]  # fmt: skip


def test_one_of_a_unit_is_singular() -> None:
    told = [in_unit(value, unit) for unit in ("logs", "GPU nodes", "links up", "tries") for value in ("1", "21")]
    assert told[::2] == ["1 log", "1 GPU node", "1 link up", "1 try"]
    assert told[1::2] == ["21 logs", "21 GPU nodes", "21 links up", "21 tries"]
    assert [in_unit("1", unit) for unit in ("s", "ms", "TFLOPS", "% of the time")] == [
        "1 s", "1 ms", "1 TFLOPS", "1 % of the time"
    ]  # fmt: skip
    assert (
        value_text("below 2147483648", "bytes") == "below 2.0GB"
        and value_text("2 of 9000", "bytes") == "2 of 9000 bytes"
    )
    assert value_text(1, "bytes") == "1 byte" and value_text("1 of 2", "nodes") == "1 of 2 nodes"


@pytest.mark.parametrize("code", [0xAD, 0x200B, 0x200D, 0x2060, 0x3164, 0xFE0F, 0xE0041, 0x34F])
def test_what_is_not_seen_does_not_reach_a_person(code: int) -> None:
    """Two names that differ in such a character alone look the same."""
    assert printable(f"node{chr(code)}01") == incoming(f"node{chr(code)}01") == "node\ufffd01"
    assert sound({f"node{chr(code)}01": [f"node{chr(code)}01"]}) == {"node\ufffd01": ["node\ufffd01"]}
