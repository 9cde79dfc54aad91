"""What is expected of the run: `result_dict` of the older form, the threshold file of the newer."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shakedown.common.nearest import there_are
from shakedown.common.text import counted
from shakedown.desired import profiles
from shakedown.desired.cvs.document import PLACEHOLDER, CvsError, Given, Imported, read, without_comments
from shakedown.desired.cvs.job import DEFAULT, SMOKE, LayerDraft
from shakedown.desired.cvs.tables import number

# The metrics of the files, with the kinds of bound that ask for more and for less. Names and directions are those of
# shakedown/logs/figures.py.
_AT_LEAST, _AT_MOST = ("min", "min_tok_s"), ("max", "max_ms")
METRICS = {
    "throughput_per_gpu": _AT_LEAST,
    "tokens_per_gpu": _AT_LEAST,
    "elapsed_time_per_iteration": _AT_MOST,
    "mem_usage": _AT_MOST,
}
SCALING = "scaling_efficiency_pct"
_BASELINE = ("scaling_baseline.tokens_per_sec_total", "scaling_baseline.num_nodes")
# What CVS packages for 8B and 70B alike (ROCm/cvs at 01b906e8): none was measured.
_PACKAGED = {"throughput_per_gpu": 100.0, "elapsed_time_per_iteration": 500.0, "tokens_per_gpu": 1000.0}
_CELL = re.compile(r"MBS=[^,]+,GBS=[^,]+,PRECISION=[^,]+")


def put_expected(draft: LayerDraft) -> None:
    """Put the figures into the layer, and for how many nodes they are."""
    unjudged = _unjudged(draft)
    if unjudged:
        _list_unjudged(draft, unjudged)
        return
    results = draft.given.get("model.result_dict")
    expect: dict[str, Any] = {}
    if results is not None and isinstance(results.value, dict):
        expect = _of_results(results.path, results.value, draft.notes)
    if draft.chosen.form != "sections":
        expect = _with_thresholds(draft, expect)
        _drop_packaged(draft, expect)
    if not expect:
        return
    draft.put("smoke.expect", expect)
    nodes = (draft.figure_nodes or draft.parsed.get("config.nnodes")) if draft.chosen.distributed else 1
    if nodes is None:
        return
    draft.put("smoke.expect_nodes", nodes)
    planned = draft.parsed.get("config.nnodes")
    if planned is not None and planned != nodes and draft.chosen.distributed:
        reason = f"a comment in the file says that its figures are for {counted(nodes, 'node')}"
        draft.notes.flag(draft.given["config.nnodes"], reason)


def _unjudged(draft: LayerDraft) -> str:
    if draft.chosen.run == SMOKE:
        return "CVS judges no figure of its cell smoke"
    precision = str(draft.parsed.get("model.precision", ""))
    if draft.family is not None and precision.lower() in draft.family.untrained:
        return f"no recipe trains in {precision}"
    if draft.parsed.get("enforce_thresholds") is not False:
        if "enforce_thresholds" in draft.parsed:
            draft.notes.derive(draft.given["enforce_thresholds"], "every figure of the run's cell is judged")
        return ""
    draft.notes.refuse(draft.given["enforce_thresholds"], "no figure is judged; each is recorded")
    return "it is not judged, since enforce_thresholds is false"


def _list_unjudged(draft: LayerDraft, reason: str) -> None:
    for name in ("threshold_json", *_BASELINE):
        if name in draft.given and draft.given[name].value not in ("", None):
            draft.notes.refuse(draft.given[name], reason)
    results = draft.given.get("model.result_dict")
    figures = {f"{results.path}.{name}": value for name, value in results.value.items()} if results else {}
    if draft.chosen.form != "sections" and draft.chosen.run != SMOKE:
        try:
            where, cell = _own_cell(draft)
            figures |= {f"{where}.{key}": rule for key, rule in cell.items()}
        except CvsError as error:
            stops = "; ".join(problem.expected for problem in error.problems)
            draft.notes.flag(Given("threshold_json", "threshold_json", None), f"CVS itself stops at the file: {stops}")
    for name, value in figures.items():
        draft.notes.refuse(Given(name, name, value), reason)


def _drop_packaged(draft: LayerDraft, expect: dict[str, Any]) -> None:
    """Take out the figures that CVS packages for every model: a run that meets them has shown nothing."""
    for name in [name for name, value in _PACKAGED.items() if expect.get(name) == value]:
        given = Given(name, f"{draft.chosen.run}: {name}", expect.pop(name))
        draft.notes.refuse(given, "CVS packages this figure for every model: no measurement, so nothing is expected")


def _of_results(path: str, results: Mapping[str, Any], notes: Imported) -> dict[str, Any]:
    """Metric -> bound of a `result_dict`. An open one stays <changeme>; 0 is what the files write for no bound."""
    expect: dict[str, Any] = {}
    for name, value in results.items():
        given = Given(name, f"{path}.{name}", value)
        if name not in METRICS:
            notes.wrong(given, f"no such metric ({there_are(name, METRICS)})")
        elif given.is_open:
            notes.leave_open(given, f"smoke.expect.{name}")
            expect[name] = PLACEHOLDER
        elif (bound := _bound(given, notes)) is not None:
            expect[name] = bound
    return expect


def _of_thresholds(
    path: str, cell: Mapping[str, Any], notes: Imported, per_gpu: Callable[[float], float | None]
) -> dict[str, float]:
    """Return metric -> bound of a threshold cell. `per_gpu`: tokens/s/GPU of a percentage; None: no baseline."""
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
            name, bound = "tokens_per_gpu", tokens
        if name in expect:
            notes.derive(given, f"the greater of {bound:g} and {expect[name]:g} is judged")
        expect[name] = max(bound, expect.get(name, 0.0))
    return expect


def _of_rule(given: Given, name: str, notes: Imported) -> float | None:
    """Return the bound of one rule, in the metric's own direction."""
    rule = given.value
    kind = rule.get("kind") if isinstance(rule, dict) else None
    known = name in METRICS or name == SCALING
    if kind == "info":
        reason = "it is recorded, as every metric is" if known else "it is no bound, and is not measured here"
        notes.refuse(given, reason)
        return None
    if not known:
        notes.wrong(given, f"no such metric ({there_are(name, [*METRICS, SCALING])})")
        return None
    kinds = METRICS.get(name, _AT_LEAST)
    if kind not in (*kinds, "within"):
        way = "more" if kinds == _AT_LEAST else "less"
        reason = " (a ratio to another metric is no bound here)" if kind == "min_ratio" else f", since {way} is better"
        notes.wrong(given, f"the kind {' or '.join([*kinds, 'within'])}{reason}")
        return None
    unknown = set(rule) - {"kind", "value", "optional", *(["tolerance_pct"] if kind == "within" else [])}
    if unknown:
        notes.wrong(given, f"no {', '.join(sorted(unknown))} with the kind {kind}")
        return None
    if "optional" in rule:
        optional = Given(name, f"{given.path}.optional", rule["optional"])
        if not isinstance(rule["optional"], bool):
            notes.wrong(optional, "true or false")
        elif optional.value:
            notes.flag(optional, "CVS passes a run without this figure; here the gate is unknown without it")
    value = _bound(Given(name, f"{given.path}.value", rule.get("value")), notes)
    return _edge(given, value, kinds, notes) if kind == "within" and value is not None else value


def _edge(given: Given, value: float, kinds: tuple[str, str], notes: Imported) -> float | None:
    """Return the edge of a band on the side of the worse values. A run that is better than the band has not failed."""
    tolerance = number(given.value.get("tolerance_pct"))
    if tolerance is None or not 0 <= tolerance < 100:
        notes.wrong(given, "a tolerance_pct from 0 to below 100")
        return None
    sign, other = (-1, "above") if kinds == _AT_LEAST else (1, "below")
    band = Given(given.name, f"{given.path}.kind", "within")
    notes.refuse(band, f"a run {other} the band is a better one: it passes")
    return value * (1 + sign * tolerance / 100)


def _bound(given: Given, notes: Imported) -> float | None:
    bound = number(given.value)
    if bound is None or bound < 0:
        notes.wrong(given, "a number above 0")
    elif bound == 0:
        notes.refuse(given, "0 is no bound: the metric is recorded")
    else:
        return float(bound)
    return None


def _with_thresholds(draft: LayerDraft, expect: dict[str, Any]) -> dict[str, Any]:
    """Return the expected figures with those of the file's cell over them."""
    try:
        where, cell = _own_cell(draft)
    except CvsError as error:
        draft.notes.problems += error.problems
        where, cell = "", {}
    rule = cell.get(f"training.{SCALING}")
    judged = isinstance(rule, dict) and rule.get("kind") != "info" and rule.get("value") != 0
    for baseline in _BASELINE if not judged or not draft.parsed.get(_BASELINE[0]) else ():
        if baseline in draft.given:
            draft.notes.refuse(draft.given[baseline], f"no {SCALING} of this run is judged with it")
    thresholds = _of_thresholds(where, cell, draft.notes, lambda percent: _tokens(draft, percent))
    for name in expect.keys() & thresholds.keys():
        results = draft.given["model.result_dict"]
        given = Given(name, f"{results.path}.{name}", expect[name])
        draft.notes.refuse(given, f"{where} says {thresholds[name]:g}, and it is the newer of the two")
        draft.notes.open = [problem for problem in draft.notes.open if problem.path != given.path]
    return expect | thresholds


def _own_cell(draft: LayerDraft) -> tuple[str, dict[str, Any]]:
    """Return where the run's cell stands, and the cell; an empty one, with the reason noted, where there is none."""
    path = _threshold_file(draft)
    if path is None:
        return "", {}
    cells = without_comments(read(path, f"cvs {path}"))
    key = draft.chosen.thresholds[draft.chosen.run]
    for name, cell in cells.items():
        given = Given(name, f"{path.name}: {name}", cell)
        if not (_CELL.fullmatch(name) or name == DEFAULT) or not isinstance(cell, dict):
            draft.notes.wrong(given, "MBS=..,GBS=..,PRECISION=.. and an object")
        elif name not in draft.chosen.thresholds.values():
            draft.notes.refuse(given, "no run has this cell; CVS stops at it where thresholds are enforced")
    if not isinstance(cells.get(key), dict):
        absent = Given(key, f"{path.name}: {key}", None)
        stops = "its figures are recorded; CVS stops where thresholds are enforced"
        draft.notes.refuse(absent, f"the file has no cell for this run ({', '.join(cells)}): {stops}")
        return "", {}
    return f"{path.name}: {key}", cells[key]


def _threshold_file(draft: LayerDraft) -> Path | None:
    """Return the chosen or named file, the one with this file's own name, or the only one in the folder."""
    named = draft.given.get("threshold_json", Given("threshold_json", "threshold_json", ""))
    if draft.thresholds:
        if named.value:
            draft.notes.refuse(named, f"--thresholds says {draft.thresholds}")
        return Path(draft.thresholds).expanduser()
    if named.is_open:
        draft.notes.wrong(named, "the name of the GPU's threshold file, here or with --thresholds")
        return None
    folder, stem = draft.file.parent, draft.file.stem
    if named.value:
        draft.notes.derive(named, "the figures of the run's cell in this file")
        return folder / str(named.value)
    own = [folder / f"{name}_threshold.json" for name in (stem, stem.removesuffix("_config"))]
    beside = sorted(folder.glob("*threshold.json"))
    fitting = [path for path in own if path in beside] or beside
    if not fitting:
        draft.notes.refuse(named, "no threshold file stands beside the file: every figure is recorded")
        return None
    if len(fitting) > 1 and fitting[0] not in own:
        there = ", ".join(path.name for path in fitting)
        how = '--thresholds, or "thresholds" beside "file" in a layer'
        draft.notes.wrong(named, f"the name of a threshold file, here or with {how} (beside this one: {there})")
        return None
    return fitting[0]


def _tokens(draft: LayerDraft, percent: float) -> float | None:
    """Return tokens/s/GPU of this part of the baseline's, None without one: N nodes' efficiency is total / (N / n x
    baseline of n nodes), so for each GPU N falls out."""
    total = draft.parsed.get("scaling_baseline.tokens_per_sec_total", 0.0)
    nodes = draft.parsed.get("scaling_baseline.num_nodes", 1)
    if not total or nodes < 1:
        return None
    gpus = int(profiles.load("gpu", draft.chosen.gpu)["gpu"]["count"])
    return float(percent / 100 * total / (nodes * gpus))
