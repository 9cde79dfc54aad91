"""How many secrets pass the masks, and how much that is harmless does not: measured over tests/data/secrets."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shakedown.common import command_secrets
from shakedown.common.command_secrets import named
from shakedown.common.command_secrets.forms import Values, forms
from shakedown.common.secrets import MASK, Masker, found_in, is_secret
from tests.at_once import at_once

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests/data/secrets"
BOTH = string.ascii_letters + string.digits
ALPHABETS = {
    "b": BOTH,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "d": string.digits,
    "u": string.ascii_uppercase + "234567",
    "w": BOTH + "_-",
    "B": BOTH + "+/",
    "l": string.ascii_lowercase,
}
PIECE = 10  # characters of a secret that must not be left
SEEDS = range(5)


@cache
def lines(name: str) -> list[str]:
    return [line for line in (LISTS / name).read_text().splitlines() if line and not line.startswith("#")]


def made_up(template: str, seed: int) -> tuple[str, list[str]]:
    """Return a line with values in its places, and the secrets in it."""
    draw = random.Random(f"{seed} {template}")

    def value(found: re.Match[str]) -> str:
        kind, size = found[1], int(found[2])
        if kind == "p":
            letters = [draw.choice(BOTH) for _ in range(size - 1)]
            return "".join([*letters[:-2], draw.choice("!#%+*~^"), *letters[-2:]])
        return "".join(draw.choice(ALPHABETS[kind]) for _ in range(size))

    line = re.sub(r"\{(\w):(\d+)\}", value, template)
    return line.replace("[[", "").replace("]]", ""), re.findall(r"\[\[(.*?)\]\]", line)


def missed(seed: int) -> list[str]:
    left = []
    for template in lines("real.txt"):
        line, values = made_up(template, seed)
        shown = Masker().text(line)[0]
        pieces = [value[at : at + PIECE] for value in values for at in range(max(len(value) - PIECE + 1, 1))]
        left += [line] if any(piece in shown for piece in pieces) else []
    return left


def test_at_most_one_secret_in_a_hundred_passes_and_no_harmless_line_is_changed() -> None:
    real, harmless = lines("real.txt"), lines("harmless.txt")
    assert len(real) >= 200 and len(harmless) >= 300
    of_seeds = [missed(seed) for seed in SEEDS]
    assert sum(map(len, of_seeds)) <= 0.01 * len(SEEDS) * len(real), of_seeds
    changed = [line for line in harmless if Masker().text(line) != (line, 0) or list(found_in(line))]
    assert changed == []
    said = " ".join((ROOT / "docs/security.md").read_text().split())
    rate = 100 * sum(map(len, of_seeds)) / len(SEEDS) / len(real)
    assert f"of {len(real)} real forms {rate:.1f} % pass" in said, f"{rate:.1f} % of {len(real)}"
    assert f"of {len(harmless)} harmless lines {len(changed)} are changed" in said


def test_no_line_of_the_list_is_masked_because_all_of_it_would_be() -> None:
    """A masker that masks everything misses nothing: what stands around a secret stays."""
    for template in lines("real.txt"):
        line, values = made_up(template, 0)
        around = "".join(line.split(value, 1)[0] for value in values[:1]).rstrip(" \"'")
        shown = Masker().text(line)[0]
        assert shown.startswith(around[: len(around) // 3]), (line, shown)


@at_once("form", forms())
def test_each_form_is_needed_by_a_line_of_the_list(form: object) -> None:
    known = [each for each in forms() if each is form]
    assert any(known[0].without(line, MASK)[1] for line in (made_up(template, 0)[0] for template in lines("real.txt")))


def test_many_known_values_are_found_as_few_are() -> None:
    values = [f"value{number}-of-{number * 7919}" for number in range(500)] + ["iteration", "aaaaa1" + "b" * 400]
    text = f"an iteration and {values[7]}, reiteration, {values[499]}{values[3]} {MASK} aaaaa1{'b' * 400}!"
    few = Values([values[7], values[499], values[3], *values[-2:]], 6).without(text, MASK)
    assert (
        Values(values, 6).without(text, MASK)
        == few
        == (
            f"an {MASK} and {MASK}, reiteration, {MASK}{MASK} {MASK} {MASK}!",
            5,
        )
    )


def test_a_token_that_only_begins_as_a_very_long_one_is_masked_as_far_as_it_is_known() -> None:
    long = "x" * 4 + "1" + "y" * 395
    shown, count = Values([long, *(f"other-{number}" for number in range(40))], 6).without(f"<{long[:300]}>", MASK)
    assert (shown, count) == (f"<{MASK}{'y' * 44}>", 1)


def test_long_tokens_that_begin_alike_are_each_masked_to_their_end() -> None:
    """Of one issuer: header and claims are the same, and the signatures differ."""
    tokens = [f"{'eyJhbGciOiJSUzI1NiJ9' * 20}.{number}{'z' * number}" for number in (1, 2, 30)]
    text = " ".join(f"<{token}>" for token in tokens)
    assert Values(tokens, 6).without(text, MASK) == (" ".join([f"<{MASK}>"] * 3), 3)


@pytest.mark.parametrize(
    "name", ["json_key", "image_key", "hotkey", "forward_pass", "cls_token", "NCCL_IB_PKEY", "rkey"]
)
def test_keys_that_are_none(name: str) -> None:
    assert not is_secret(name)


def test_no_key_of_the_project_s_own_documents_and_no_option_of_a_known_program_is_one() -> None:
    schemas = [json.loads(path.read_text()) for path in (ROOT / "docs/schemas").glob("*.json")]
    keys = {name for schema in schemas for name in _properties(schema)}
    assert len(keys) > 300 and {name for name in keys if is_secret(name)} == {"secrets"}, "a list of names"
    programs = "".join(path.read_text() for path in (ROOT / "shakedown/recipes/programs").glob("*.toml"))
    options = set(re.findall(r'(?m)^"?([A-Za-z][\w.-]+)"? = ', programs))
    assert len(options) > 500
    assert {name for name in options if is_secret(name)} == {"HF_TOKEN", "WANDB_API_KEY"}


def _properties(schema: Any) -> Iterator[str]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield from schema["properties"]
    for each in inner:
        yield from _properties(each)


def test_the_lines_that_are_looked_at_are_all_that_give_a_secret_away() -> None:
    """The automata pass over what holds none of their texts. Every other line is looked at here."""
    files = [path for path in LISTS.parent.rglob("*") if path.is_file() and path.stat().st_size < 15_000]
    texts = [path.read_bytes().decode("utf-8", "surrogateescape") for path in files]
    texts += ["\udc80" + text for text in texts[:5]] + [
        "eékey=Abc123xyz789 patoken=Zz9Yy8Xx7\nmyAPIKeyB: Qq1Ww2Ee3Rr4",
        "",
    ]
    assert len(texts) > 50 and sum(map(len, texts)) > 200_000
    for text in texts:
        for lines, spans in ((named.lines, named.spans), (command_secrets.lines, command_secrets.spans)):
            seen = {text[begin:end] for begin, end in lines(text)}
            for line in text.split("\n"):
                assert line in seen or not list(spans(line)), line
    for form in forms():
        assert all(form.without(text, MASK)[1] == len(form.pattern.findall(text)) for text in texts), form.name


def test_no_class_of_a_form_takes_a_line_end() -> None:
    """A form without white space is looked for in one line alone."""
    for form in forms():
        for negated in re.findall(r"\[\^(?:\\.|[^\]])*\]", form.pattern.pattern):
            assert r"\n" in negated or r"\s" in negated, form.name
        assert not form.texts or not any(sign in MASK.lower() for sign in form.texts), form.name
