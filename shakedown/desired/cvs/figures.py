"""What is expected of the run: `result_dict` of the older form, the threshold file of the newer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shakedown.desired.cvs.document import PLACEHOLDER, Given
from shakedown.desired.cvs.notes import Notes
from shakedown.desired.cvs.table import number

# The metrics of the files, with the kinds of bound that ask for more and for less. Names and directions are those of
# shakedown/smoke/figures.py.
_AT_LEAST, _AT_MOST = ("min", "min_tok_s"), ("max", "max_ms")
METRICS = {
    "throughput_per_gpu": _AT_LEAST,
    "tokens_per_gpu": _AT_LEAST,
    "elapsed_time_per_iteration": _AT_MOST,
    "mem_usage": _AT_MOST,
}
SCALING = "scaling_efficiency_pct"


def of_results(path: str, results: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Metric -> bound of a `result_dict`. An open one stays <changeme>; 0 is what the files write for no bound."""
    expect: dict[str, Any] = {}
    for name, value in results.items():
        given = Given(name, f"{path}.{name}", value)
        if name not in METRICS:
            notes.wrong(given, f"no such metric (there are {', '.join(METRICS)})")
        elif given.is_open:
            notes.leave_open(given, f"smoke.expect.{name}")
            expect[name] = PLACEHOLDER
        elif (bound := _bound(given, notes)) is not None:
            expect[name] = bound
    return expect


def of_thresholds(
    path: str, cell: Mapping[str, Any], notes: Notes, per_gpu: Callable[[float], float | None]
) -> dict[str, float]:
    """Metric -> bound of one cell of a threshold file. `per_gpu`: the tokens/s/GPU of a scaling efficiency in percent,
    None where the file has no baseline for it."""
    expect: dict[str, float] = {}
    for key, rule in cell.items():
        name = key.removeprefix("training.")
        given = Given(name, f"{path}.{key}", rule)
        bound = _of_rule(given, name, notes)
        if bound is None:
            continue
        if name == SCALING:
            tokens = per_gpu(bound)
            if tokens is None:
                notes.refuse(given, "scaling_baseline.tokens_per_sec_total is 0, with which there is nothing to scale")
                continue
            notes.flag(given, f"judged as tokens_per_gpu at least {tokens:g}: that part of the baseline, for each GPU")
            name, bound = "tokens_per_gpu", max(tokens, expect.get("tokens_per_gpu", 0.0))
        expect[name] = max(bound, expect.get(name, 0.0)) if name == "tokens_per_gpu" else bound
    return expect


def _of_rule(given: Given, name: str, notes: Notes) -> float | None:
    """The bound of one rule, in the metric's own direction."""
    rule = given.value
    kind = rule.get("kind") if isinstance(rule, dict) else None
    known = name in METRICS or name == SCALING
    if kind == "info":
        notes.refuse(
            given, "it is recorded, as every metric is" if known else "it is no bound, and is not measured here"
        )
        return None
    if not known:
        notes.wrong(given, f"no such metric (there are {', '.join([*METRICS, SCALING])})")
        return None
    kinds = METRICS.get(name, _AT_LEAST)
    if kind not in (*kinds, "within"):
        way = "more" if kinds == _AT_LEAST else "less"
        reason = " (a ratio to another metric is no bound here)" if kind == "min_ratio" else f", since {way} is better"
        notes.wrong(given, f"the kind {' or '.join([*kinds, 'within'])}{reason}")
        return None
    unknown = set(rule) - {"kind", "value", *(["tolerance_pct"] if kind == "within" else [])}
    if unknown:
        notes.wrong(given, f"no {', '.join(sorted(unknown))} with the kind {kind}")
        return None
    value = _bound(Given(name, f"{given.path}.value", rule.get("value")), notes)
    return _edge(given, value, kinds, notes) if kind == "within" and value is not None else value


def _edge(given: Given, value: float, kinds: tuple[str, str], notes: Notes) -> float | None:
    """The edge of a band on the side of the worse values. A run that is better than the band has not failed."""
    tolerance = number(given.value.get("tolerance_pct"))
    if tolerance is None or not 0 <= tolerance < 100:
        notes.wrong(given, "a tolerance_pct from 0 to below 100")
        return None
    sign, other = (-1, "above") if kinds == _AT_LEAST else (1, "below")
    band = Given(given.name, f"{given.path}.kind", "within")
    notes.refuse(band, f"a run {other} the band is a better one: it passes")
    return value * (1 + sign * tolerance / 100)


def _bound(given: Given, notes: Notes) -> float | None:
    """A bound above 0; None for 0, which is told, and for what is no bound, which is an error."""
    bound = number(given.value)
    if bound is None or bound < 0:
        notes.wrong(given, "a number above 0")
    elif bound == 0:
        notes.refuse(given, "0 is no bound: the metric is recorded")
    else:
        return float(bound)
    return None
