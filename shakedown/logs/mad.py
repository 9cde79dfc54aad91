"""What the scripts of ROCm/MAD leave: their report, torchtitan's lines, the programs' summaries.

torchtitan prints one line per step: `step: 10  loss:  7.8123  memory: 42.1GiB(22.0%)  tps: 5,043  tflops: 295.26
mfu: 22.71%`, with a grad_norm in newer versions, after `Training starts at step 1, ..., total steps 50`.
"""

import csv
import io
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from pydantic import ConfigDict

from shakedown.common.data import read_toml
from shakedown.common.frozen import Frozen
from shakedown.common.text import strip_escapes
from shakedown.logs.iterations import NUMBER

REPORT = "{run_dir}/logs/perf.csv"
_DATA = read_toml("shakedown.logs", "mad.toml")
MOST_TEXT, MOST_ROWS = 2**20, 1000  # of a report: one row for each model and precision


class _Part(Frozen):
    model_config = ConfigDict(ser_json_inf_nan="strings", defer_build=True)


class Step(_Part):
    """One step line. None: the line has no such field."""

    step: int
    loss: float | None
    grad_norm: float | None = None
    memory_gib: float | None = None  # of the GPU of the rank that printed the line
    memory_fraction: float | None = None
    tokens_per_gpu: float | None = None  # per second
    throughput_per_gpu: float | None = None  # TFLOP/s
    mfu: float | None = None  # fraction


class Figure(_Part):
    """One figure with its place: MAD's report, or a line of the log."""

    metric: str  # of METRICS_OF["mad"]
    value: float
    source: str


class Results(_Part):
    """Everything that was found, and what of the report could not be read."""

    steps: list[Step] = []
    prints_steps: bool = False  # the log must have a line for each step
    total_steps: int | None = None
    figures: list[Figure] = []
    problems: list[str] = []


STEADY = slice(30, 40)  # the steps that MAD's own report takes the mean of
_STEP = re.compile(rf"\bstep:\s*(\d{{1,9}})\s+loss:\s*({NUMBER})")
_TOTAL = re.compile(r"\bTraining starts at step \d{1,9}\b.{0,200}?\btotal steps (\d{1,9})")
_THOUSANDS = r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|" + NUMBER + ")"
_FIELDS = {
    "grad_norm": (re.compile(rf"\bgrad_norm:\s*({NUMBER})"), 1.0),
    "memory_gib": (re.compile(rf"\bmemory:\s*({NUMBER})GiB"), 1.0),
    "memory_fraction": (re.compile(rf"\bmemory:\s*{NUMBER}GiB\(({NUMBER})%\)"), 0.01),
    "tokens_per_gpu": (re.compile(rf"\btps:\s*{_THOUSANDS}"), 1.0),
    "throughput_per_gpu": (re.compile(rf"\btflops:\s*{_THOUSANDS}"), 1.0),
    "mfu": (re.compile(rf"\bmfu:\s*({NUMBER})%"), 0.01),
}


def prints_steps(parameters: Mapping[str, str]) -> bool:
    """Return whether the log of a run with these parameters must have a line for each step."""
    return any(run.items() <= parameters.items() for run in _DATA["steps"])


def read(log: str | None, report: str | None) -> Results:
    """Return the results in a log and in MAD's report; None where there is none.

    A last line without its end was cut, and counts for nothing.
    """
    lines = [strip_escapes(line) for line in (log or "").split("\n")[:-1]]
    reported, problems = read_report(report) if report is not None else ([], [])
    steps = list(_steps(lines))
    totals = [int(match[1]) for line in lines if (match := _TOTAL.search(line))]
    return Results(
        steps=steps,
        total_steps=totals[-1] if totals else None,
        figures=[*reported, *_summaries(lines)] or _means(steps[STEADY]),
        problems=problems,
    )


def _means(steady: Sequence[Step]) -> list[Figure]:
    """Return the means of torchtitan's steady steps, for a run that gave no figure itself."""
    means: list[Figure] = []
    if len(steady) < STEADY.stop - STEADY.start:
        return means
    for metric in ("tokens_per_gpu", "throughput_per_gpu"):
        values = [value for step in steady if (value := getattr(step, metric)) is not None]
        if len(values) == len(steady):
            source = f"log, mean of steps {steady[0].step} to {steady[-1].step}"
            means.append(Figure(metric=metric, value=statistics.fmean(values), source=source))
    return means


def read_report(text: str) -> tuple[list[Figure], list[str]]:
    """Return the rows of perf_MODEL.csv or of madengine's perf.csv, and what is wrong with it.

    A value that is no number is NaN, so that it is judged.
    """
    reader = csv.DictReader(io.StringIO(text[:MOST_TEXT]))
    try:
        rows = [{(name or "").strip(): value for name, value in row.items()} for row in islice(reader, MOST_ROWS + 1)]
    except csv.Error as error:
        return [], [f"the report cannot be read: {error}"]
    if len(text) > MOST_TEXT or len(rows) > MOST_ROWS:
        return [], [f"the report has more than {MOST_ROWS} rows or {MOST_TEXT} characters"]
    wanted = {"performance", "metric"}
    if not rows:
        return [], ["the report has no rows"]
    if not wanted <= set(rows[0]):
        return [], [f"the report has no column {', '.join(sorted(wanted - set(rows[0])))}"]
    figures, problems = [], []
    for number, row in enumerate(rows, start=2):
        metric, status = _DATA["report"].get((row["metric"] or "").strip()), (row.get("status") or "SUCCESS").strip()
        if status != "SUCCESS" or (metric != "" and not (row["performance"] or "").strip()):
            what = "has no value, which is how MAD leaves what it does not support" if status == "SUCCESS" else status
            problems.append(f"line {number} of the report: {row.get('model')} {what}")
        if metric is None:
            problems.append(f"line {number} of the report: unknown metric {row['metric']!r}")
        elif metric:
            figures.append(Figure(metric=metric, value=_number(row["performance"]), source=f"report, line {number}"))
    return figures, problems


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _steps(lines: Iterable[str]) -> Iterable[Step]:
    for line in lines:
        head = _STEP.search(line)
        if not head:
            continue
        values = {name: _field(line, *pattern) for name, pattern in _FIELDS.items()}
        yield Step(step=int(head[1]), loss=float(head[2]), **values)


def _field(line: str, pattern: re.Pattern[str], scale: float) -> float | None:
    match = pattern.search(line)
    return round(float(match[1].replace(",", "")) * scale, 9) if match else None


def _summaries(lines: Iterable[str]) -> Iterable[Figure]:
    known = _DATA["summary"]
    pattern = re.compile(rf"({'|'.join(map(re.escape, known))})\s*{_THOUSANDS}")
    last: dict[str, Figure] = {}
    for line in lines:
        if match := pattern.search(line):
            value = float(match[2].replace(",", ""))
            last[match[1]] = Figure(metric=known[match[1]], value=value, source=f"log, {match[1]!r}")
    return last.values()
