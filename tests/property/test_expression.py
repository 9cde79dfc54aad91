"""An expression that is tried only where a text holds one of its literals finds what it finds without that."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shakedown.catalogue import entries
from shakedown.common.data import pattern_texts, read_toml
from shakedown.common.expression import Expression
from shakedown.logs.end import EndReader, endings

END = read_toml("shakedown.logs", "end.toml")
PATTERNS = sorted(
    {form["pattern"] for form in END["ending"] + END["harmless"]}
    | {entry.pattern for entry in entries("job") if entry.pattern}
    | {entry.unless for entry in entries("job") if entry.unless}
    | set(pattern_texts("shakedown.logs", "signatures.toml").values())
    | set(pattern_texts("shakedown.logs", "job_shape.toml").values())
)
LINES = sorted(
    {line for entry in entries("job") for line in entry.shows} | {line for end in endings() for line in end.shows}
)


def test_no_line_that_an_entry_shows_is_lost_to_a_literal():
    lost = []
    for pattern in PATTERNS:
        expression, plain = Expression(pattern), re.compile(pattern)
        if expression.literals:
            lost += [
                (pattern, line)
                for line in LINES[::9]
                if (plain.search(line) and not expression.search(line))
                or (plain.match(line) and not expression.match(line))
            ]
    assert lost == []


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PATTERNS).flatmap(lambda pattern: st.tuples(st.just(pattern), st.from_regex(pattern))))
def test_no_text_that_an_expression_matches_is_lost_to_a_literal(made):
    pattern, text = made
    if re.search(pattern, text):
        assert Expression(pattern).search(text), (pattern, Expression(pattern).literals)


@pytest.mark.parametrize(
    "pattern, literals",
    [
        ("abc", ("abc",)),
        ("(?:ab|cd)x", ("ab", "cd")),
        ("[Ee]rror", ("error",)),
        ("(?:abc)?de", ("de",)),
        ("(?:abc){2,3}", ("abc",)),
        (r"x(?=.{0,9}seen)", ("seen",)),
        (r"(?!unseen)\w+", ()),
        ("abc|", ()),
        ("abc|abcd|xyz", ("abc", "xyz")),
        (r"\d+", ()),
        ("a", ()),
        ("[^ab]c", ()),
        ("ab(?:cd|ef)", ("ab",)),
    ],
)
def test_the_literals_of_an_expression(pattern, literals):
    assert Expression(pattern).literals == literals


def test_letters_beyond_ascii_that_are_the_same_without_case_are_found():
    expression = Expression("(?i)risk")
    odd = [chr(code) for code in range(128, 0x3000) if re.fullmatch("(?i)[a-z]", chr(code))]
    assert len(odd) == 4
    for letter in odd:
        text = "".join(letter if re.fullmatch(f"(?i){plain}", letter) else plain for plain in "risk")
        assert expression.search(text), text


def test_every_form_of_an_end_has_a_literal():
    assert all(Expression(end.pattern.pattern).literals for end in endings())
    reader = EndReader()
    reader.take(b"x\n", 0)
    assert reader.end().failed == ""
