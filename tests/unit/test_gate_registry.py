"""A gate is a function with its name once: what it needs is there in the type that it says, and decides who asks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from shakedown import gates
from shakedown.gates import Observed, registry
from shakedown.gates.model import Outcome
from shakedown.gates.observed import JobEnd, NodeWatch, Reading, Training
from shakedown.gates.registry import Rule, gate
from shakedown.logs.mad import Results
from shakedown.logs.metrics import METRICS
from shakedown.state.findings import Verdict

PACKAGE = Path(gates.__file__).parents[1]
NAMES = [rule.name for rule in gates.rules() if not rule.names]


@pytest.mark.parametrize("rule", gates.rules(), ids=lambda rule: rule.name or "metric")
def test_a_gate_gets_what_its_parameters_say(rule: Rule) -> None:
    groups, parameters = get_type_hints(Observed), get_type_hints(rule.function)
    for name in rule.takes:
        kinds = [kind for kind in get_args(groups[name]) if kind is not type(None)] or [groups[name]]
        assert parameters[name] in (kinds[0], groups[name]), name
    assert rule.holds_when.endswith(".")


def test_gates_are_shown_in_one_order() -> None:
    assert NAMES[:2] == ["ran_to_its_end", "exit_codes"] and NAMES[-1] == "nothing_left"
    places = [NAMES.index(name) for name in ("logs_complete", "iterations_complete", "rccl_tuning", "counters")]
    assert places == sorted(places)


def test_the_name_of_a_gate_stands_nowhere_else_in_the_product() -> None:
    words = set(NAMES) - {"counters", "recipe", "report", "no_throttling"}  # they mean more than gates
    one_of_them = re.compile("|".join(words))
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.value}"
        for folder in (PACKAGE, PACKAGE / "facts", PACKAGE / "operations")
        for path in folder.rglob("*.py")
        for text in [path.read_text()]
        if one_of_them.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in words
        # modules, in order; which gates follow from an early end; what older names are now
        if path.name not in ("registry.py", "consequences.py", "records.py")
    ]
    assert not found


def test_a_gate_without_evidence_is_skipped() -> None:
    def judged(**groups: Any) -> list[str]:
        return [gate.name for gate in gates.judge(Observed(**groups))]

    assert judged() == []
    assert judged(end=JobEnd()) == []
    assert judged(end=JobEnd(left={})) == ["nothing_left"]
    assert judged(end=JobEnd(exit_codes={"a": 0}, participants=["a"])) == ["exit_codes"]
    assert judged(watch=NodeWatch()) == []
    lines = ["iterations_complete", "loss_finite", "no_skipped_or_nan", "loss_falling"]
    assert judged(training=Training([])) == lines
    assert judged(benchmark=Results()) == ["report", "figures_finite"]
    assert judged(benchmark=Results(prints_steps=True))[2:] == ["steps_complete", "loss_finite"]
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


def test_a_new_gate_judges_like_the_others_and_comes_after_them(registered: object) -> None:
    @gate
    def never_mind(training: Training, end: JobEnd | None = None) -> Outcome:
        """Nobody minds."""
        return outcome(Verdict.FAIL if end and end.left else Verdict.OK)

    assert gates.rules()[-1].holds_when == "Nobody minds."
    last = gates.judge_log({}, {})[-1]
    assert (last.name, last.verdict) == ("never_mind", never_mind(Training([])).verdict)
    end, cut = JobEnd(left={"a": ["x"]}), Reading(cut="half of it is not there")
    last = gates.judge(Observed(training=Training([]), end=end, reading=cut))[-1]
    assert (last.verdict, last.evidence) == (Verdict.UNKNOWN, "; but half of it is not there")
    assert [gate.name for gate in gates.judge(Observed(end=JobEnd(left={})))] == ["nothing_left"]


def test_a_gate_that_could_never_judge_is_refused(registered: object) -> None:
    with pytest.raises(TypeError, match="sunny: Observed has no group weather"):

        @gate
        def sunny(weather: str) -> Outcome:
            return outcome()

    with pytest.raises(TypeError, match="misspelt: Observed has no group logz"):

        @gate
        def misspelt(training: Training, logz: str | None = None) -> Outcome:
            return outcome()

    with pytest.raises(TypeError, match="it needs no group"):

        @gate
        def always() -> Outcome:
            return outcome()

    with pytest.raises(ValueError, match="two gates are named exit_codes"):

        @gate
        def exit_codes(end: JobEnd) -> Outcome:
            return outcome()


def test_an_outcome_that_is_ok_has_no_remedy_and_all_others_keep_theirs() -> None:
    kept = {verdict: Outcome(verdict=verdict, remedy="do it").remedy for verdict in Verdict if verdict != "drift"}
    assert kept == {"ok": None, "warn": "do it", "fail": "do it", "unknown": "do it"}
