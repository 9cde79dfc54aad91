"""A gate is a function with its name once: what it needs is there in the type that it says, and decides who asks it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from shakedown import gates
from shakedown.gates import Observed, registry
from shakedown.gates.model import Outcome
from shakedown.gates.registry import Rule, gate
from shakedown.logs.metrics import METRICS
from shakedown.state.findings import Verdict

PACKAGE = Path(gates.__file__).parents[1]
NAMES = [rule.name for rule in gates.rules() if rule.name]


@pytest.mark.parametrize("rule", gates.rules(), ids=lambda rule: rule.name or "metric")
def test_a_gate_gets_what_its_parameters_say(rule: Rule) -> None:
    known, said = get_type_hints(Observed), get_type_hints(rule.function)
    for name in rule.takes:
        given = [kind for kind in get_args(known[name]) if kind is not type(None)] or [known[name]]
        assert said[name] in (given[0], known[name]), name
    assert rule.holds_when.endswith(".")


def test_gates_are_shown_in_one_order() -> None:
    assert NAMES[:3] == ["ran_to_its_end", "ran", "exit_codes"] and NAMES[-1] == "nothing_left"
    places = [NAMES.index(name) for name in ("logs_complete", "iterations_complete", "rccl_tuning", "counters")]
    assert places == sorted(places)


def test_the_name_of_a_gate_stands_nowhere_else_in_the_product() -> None:
    words = set(NAMES) - {"counters", "recipe", "report", "ran", "exit_code"}  # words that mean other things as well
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.value}"
        for folder in (PACKAGE, PACKAGE / "facts", PACKAGE / "operations")
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in words and path.name != "registry.py"  # modules, in order
    ]
    assert not found


def test_what_there_is_evidence_of_decides_which_gates_are_asked() -> None:
    def asked(**observed: Any) -> list[str]:
        return [each.name for each in gates.judge(Observed(**observed))]

    assert asked() == []
    assert asked(left={}) == ["nothing_left"]
    assert asked(codes={"a": 0}, participants=["a"]) == ["exit_codes"]
    assert asked(before={"a": {}}) == []
    assert asked(ended_with={"a": 0}) == ["exit_code"]
    assert asked(iterations=[]) == ["iterations_complete", "loss_finite", "no_skipped_or_nan", "loss_falling"]
    assert asked(steps=[]) == ["steps_complete", "loss_finite"]
    assert set(METRICS) <= {each.name for each in gates.judge_log({}, dict.fromkeys(METRICS, 1.0))}


@pytest.fixture
def registered() -> Iterator[dict[str, list[Rule]]]:
    gates.rules()
    kept = {module: list(rules) for module, rules in registry._RULES.items()}
    yield registry._RULES
    registry._RULES.clear()
    registry._RULES.update(kept)


def outcome(verdict: Verdict = Verdict.OK) -> Outcome:
    return Outcome(verdict=verdict)  # type: ignore[arg-type]


def test_a_new_gate_is_asked_like_the_others_and_comes_after_them(registered: object) -> None:
    @gate
    def never_mind(iterations: list[Any], left: dict[str, Any] | None = None) -> Outcome:
        """Nobody minds."""
        return outcome(Verdict.FAIL if left else Verdict.OK)

    assert never_mind([]).name == "never_mind"
    assert gates.rules()[-1].holds_when == "Nobody minds."
    assert gates.judge_log({}, {})[-1] == never_mind([])
    told = gates.judge(Observed(iterations=[], left={"a": ["x"]}, cut="half of it is not there"))
    assert (told[-1].verdict, told[-1].evidence) == (Verdict.UNKNOWN, "; but half of it is not there")
    assert [each.name for each in gates.judge(Observed(left={}))] == ["nothing_left"]


def test_a_gate_that_could_not_be_asked_is_refused(registered: object) -> None:
    with pytest.raises(TypeError, match="weather: no field of Observed"):

        @gate
        def sunny(weather: str) -> Outcome:
            return outcome()

    with pytest.raises(TypeError, match="nccl_debugg: no field of Observed"):

        @gate
        def misspelt(iterations: list[Any], nccl_debugg: str | None = None) -> Outcome:
            return outcome()

    with pytest.raises(TypeError, match="it needs nothing"):

        @gate
        def always() -> Outcome:
            return outcome()

    with pytest.raises(ValueError, match="two gates are named exit_code"):

        @gate
        def exit_code(ended_with: dict[str, int]) -> Outcome:
            return outcome()
