"""A node that answers whatever it likes: its own reading fails, in words, and nobody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from shakedown.common.text import DEEPEST, LONGEST, sound
from shakedown.facts.node import DOCUMENT, parse, state_of
from shakedown.state.node import NodeState
from tests.sshd import SSHD, start
from tests.states import healthy
from tests.unit.test_connection import drive, inventory

SOUND = healthy().model_dump_json()
EPOCH = json.loads(SOUND)["system"]["epoch_s"]


def with_epoch(number: str) -> str:
    document = json.loads(SOUND)
    document["system"]["epoch_s"] = "HERE"
    return json.dumps(document).replace('"HERE"', number)


def with_text(text: str) -> str:
    document = json.loads(SOUND)
    document["system"]["hostname"] = text
    return json.dumps(document)


REFUSED: dict[str, str] = {
    "deep list": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "deep object": '{"a":' * 900 + "1" + "}" * 900,
    "just too deep": '{"a":' * (DEEPEST + 2) + "1" + "}" * (DEEPEST + 2),
    "5000 digits": with_epoch("9" * 5000),
    "4000 digits": with_epoch("9" * 4000),
    "infinite": with_epoch("1e400"),
    "Infinity": with_epoch("Infinity"),
    "NaN": with_epoch("NaN"),
    "wrong type": with_epoch('"soon"'),
    "an object for a number": with_epoch('{"unreadable": "failed", "more": [1, 2]}'),
    "null": with_epoch("null"),
    "unknown key": '{"surprise": 1, ' + SOUND[1:],
    "nothing in it": "{}",
    "cut short": SOUND[:-1],
    "no JSON": "{" + "x" * 1000,
    "other encoding": SOUND.encode("utf-16").decode("latin-1"),
    "nothing at all": "",
    "many lines": "\n" * 100_000,
}


def test_each_is_a_failure_of_that_node_in_words(tmp_path: Path) -> None:
    assert SSHD, "these tests need sshd: make system"
    (tmp_path / "sshd").mkdir()
    (tmp_path / "answers").mkdir()
    answers = {
        **REFUSED,
        "sound": SOUND,
        "escapes": with_text("\x1b[2Jevil\x07\u202e"),
        "twice": '{"probe": 7,' + SOUND[1:],
    }
    for number, text in enumerate(answers.values()):
        (tmp_path / f"answers/{number}").write_bytes(text.encode("utf-8", "surrogatepass") + b"\n")
    node, server = start(tmp_path / "sshd", f"ForceCommand cat {tmp_path}/answer")
    body = f"""
import shutil
from shakedown.runner.examine import read
result = []
for number in range({len(answers)}):
    shutil.copy("{tmp_path}/answers/" + str(number), "{tmp_path}/answer")
    reading = read(hosts[0])
    result.append([reading.state.system.hostname if reading.state else None, reading.why])
"""
    try:
        readings = dict(zip(answers, drive(tmp_path, inventory(tmp_path, ("evil", node.data())), body), strict=True))
    finally:
        server.terminate()
        server.wait(10)
    assert readings.pop("sound") == [healthy().system.hostname, ""]
    assert readings.pop("escapes") == ["evil\ufffd\ufffd", ""]
    assert readings.pop("twice")[1] == "", "of two values the last counts, and is checked as any"
    for name, (state, why) in readings.items():
        assert state is None, name
        assert why and why.isprintable() and len(why) < 600, (name, why)


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_the_fact_raises_nothing_that_would_end_the_run_for_all(text: str) -> None:
    try:
        parse(text.splitlines())
    except FactProcessError as error:
        assert str(error)


def test_a_document_has_a_size() -> None:
    with pytest.raises(FactProcessError, match=f"at most {DOCUMENT}"):
        parse(['{"a": "' + "x" * DOCUMENT + '"}'])
    room = DOCUMENT - len('{"a": ""}')
    assert len(parse(['{"a": "' + "x" * room + '"}'])["a"]) == LONGEST


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\x1b[31mb\x07\nc\r\n", "ab\ufffd\nc\n"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * LONGEST + "y", "x" * LONGEST),
        ({"\x1b[1mk": [True, None, 1.5, -(1 << 64), 1 << 64]}, {"k": [True, None, 1.5, -(1 << 64), 1 << 64]}),
        (nested(DEEPEST), nested(DEEPEST)),
    ],
)
def test_what_a_document_is_made_into(value: Any, kept: Any) -> None:
    assert sound(value) == kept


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": {"b": [1 + (1 << 64)]}}, "a.b"),
        ({"a": -1 - (1 << 64)}, "a"),
        ({"a": float("nan")}, "a"),
        ({"a": float("inf")}, "a"),
        (nested(DEEPEST + 1), ""),
    ],
)
def test_what_a_document_must_not_hold(value: Any, place: str) -> None:
    with pytest.raises(ValueError, match=f"{place}: n"):
        sound(value)


def test_a_plain_document_is_read_as_any_other() -> None:
    """The text that pydantic reads alone gives the state that the walk over the document gives, and holds it as once.
    What the walk would clean or refuse never comes by that way."""
    plain = [state_of(["Welcome to rack 7", healthy(number).model_dump_json()], list) for number in (1, 2)]
    assert plain == [healthy(1), healthy(2)]
    assert len({id(state.system.model_fields_set) for state in plain}) == 1
    assert plain[0].system.kernel is plain[1].system.kernel
    for name in ("\x1b[2Jevil", "zero\u200bwidth", "\x07", "tab\tand\nline", 'a "quoted" \\ name', "x" * (LONGEST + 1)):
        text = with_text(name)
        assert state_of([text], list) == NodeState.model_validate(sound(json.loads(text)), strict=False)
    with pytest.raises(FactProcessError, match="not a number of 64 bits"):
        state_of([with_epoch("1e30")], list)
    with pytest.raises(FactProcessError, match="printed no document"):
        state_of(["Welcome"], list)
    installed = state_of(['{"shakedown_bundle": "missing"}'], lambda: [SOUND])
    assert installed == healthy()


def test_a_part_that_many_nodes_have_is_held_once_and_an_odd_one_never() -> None:
    """A node that sends the same escape sequence again is cleaned again: no part that needs it is taken as known."""
    plain = [state_of([healthy(number).model_dump_json()], list) for number in (1, 2)]
    gpus: Any = [state.gpus for state in plain]
    assert gpus[0][0].link is gpus[1][3].link
    document = json.loads(healthy().model_dump_json())
    document["clock"]["service"] = "chrony\x1b[2Jd"
    hostile = [state_of([json.dumps(document)], list) for _ in range(3)]
    assert {str(state.clock.service) for state in hostile} == {str(sound("chrony\x1b[2Jd"))}
