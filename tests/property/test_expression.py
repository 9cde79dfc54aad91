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


LETTERS = st.text("aKks\u017fi\u0130\u03c3\u03c2\u00b5", min_size=1, max_size=3)
FORMS = ("(?:%s)?", "(?:%s){0}", "(?:%s){2}", "(%s)", "(?i:%s)", "(?=%s)", "(?!%s)", "(?>%s)", "(a)?(?(1)%s|b)", "[%s]")
BUILT = st.recursive(
    LETTERS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(st.sampled_from(FORMS[:-2]), inner).map(lambda both: both[0] % both[1]),
        LETTERS.map(FORMS[-1].__mod__),
    ),
    max_leaves=6,
) | LETTERS.map(FORMS[-2].__mod__)


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    BUILT,
    st.sampled_from((0, re.IGNORECASE)),
    st.text("aKk\u212as\u017fi\u0131\u0130\u03c3\u03a3b", max_size=9),
    st.data(),
)
def test_no_construct_of_expressions_loses_a_text(pattern, flags, around, data):
    compiled = re.compile(pattern, flags)
    text = around + data.draw(st.from_regex(compiled)) + around
    assert bool(Expression(pattern, flags).search(text)) == bool(compiled.search(text))


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
