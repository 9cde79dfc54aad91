"""The page's plots, by matplotlib, as SVG images in data URIs.

As images they can run nothing, load nothing and match no style of the page. Colours of lines and text are variables in
each image's own style, which follows the reader's light or dark theme.
"""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shakedown.common.text import counted
from shakedown.logs.metrics import METRICS
from shakedown.state.findings import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from shakedown.report.overview import Overview
    from shakedown.runs.directory import JobRecord

LINES = 8  # in one plot: more cannot be told apart
POINTS = 4000  # of one line that are drawn as lines; more become an image inside the image
WIDTH, HEIGHT = 6.4, 2.6  # inches
# Colours that are replaced by variables of the image's style; the plot never uses these for anything else.
_INK, _GRID, _BAD = "#010203", "#010204", "#010205"
# After Okabe and Ito's palette, which people with any kind of colour vision tell apart, without black and yellow.
_LIGHT = ("#0072b2", "#b97f00", "#009e73", "#b5538a", "#2f8fc4", "#d55e00")  # darker where white asks for it
_DARK = ("#56b4e9", "#e69f00", "#2bc48f", "#cc79a7", "#9ad1f2", "#ff8a4c")
_COLOURS = tuple(f"#01{number:02d}06" for number in range(len(_LIGHT)))
_VARIABLES = {_INK: "--ink", _GRID: "--grid", _BAD: "--bad"} | {each: f"--c{each[3:5]}" for each in _COLOURS}


def _theme(*colours: str) -> str:
    return ";".join(f"{name}:{colour}" for name, colour in zip(_VARIABLES.values(), colours, strict=True))


_STYLE = (
    f"<style>svg{{{_theme('#33373d', '#d5d9de', '#b3261e', *_LIGHT)}}}@media screen and (prefers-color-scheme:dark)"
    f"{{svg{{{_theme('#c9ced6', '#3a4048', '#ff8a80', *_DARK)}}}}}</style>"
)
_DASHES = ("-", "--", "-.", ":")
SERIES = {
    "lm_loss": "loss",
    "tflops_per_gpu": "TFLOP/s/GPU",
    "tokens_per_gpu_per_s": "tokens/s/GPU",
    "elapsed_ms": "time of an iteration [ms]",
}
VERDICT_COLOURS = {
    None: (0.5, 0.5, 0.5, 0.08),
    Verdict.OK: (0.18, 0.55, 0.34, 0.35),
    Verdict.WARN: (0.34, 0.71, 0.91, 1.0),
    Verdict.DRIFT: (0.90, 0.62, 0.0, 1.0),
    Verdict.UNKNOWN: (0.80, 0.47, 0.65, 1.0),
    Verdict.FAIL: (0.70, 0.15, 0.12, 1.0),
}


@dataclass(frozen=True)
class Plot:
    """One plot: what it shows, in words too, for who does not see it."""

    title: str
    alt: str
    image: str  # data URI


def of(shown: Overview) -> list[Plot]:
    """The plots of a run's jobs over their iterations."""
    jobs = [job for job in shown.jobs if job.iterations][:LINES]
    failed = {gate.job for gate in shown.gates if gate.verdict == Verdict.FAIL}
    made = [_over_iterations(jobs, field, label, failed) for field, label in SERIES.items()]
    return [plot for plot in made if plot is not None]


def _over_iterations(jobs: Sequence[JobRecord], field: str, label: str, failed: set[str]) -> Plot | None:
    lines = []
    for job in jobs:
        points = [(it.iteration, value) for it in job.iterations if (value := getattr(it, field)) is not None]
        if points:
            lines.append((job, points))
    if not lines:
        return None
    metric = next((metric for metric in METRICS.values() if metric.source == field), None)

    def draw(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        for number, (job, points) in enumerate(lines):
            name = job.node or "all nodes"
            line(axes, [x for x, _ in points], [y for _, y in points], number, name, marked=len(points) == 1)
            planned = job.plan.iterations if job.plan else 0
            if job.name in failed and points[-1][0] < planned:
                mark(axes, points[-1][0], "the job ended here")
        expected = [job.plan.expect.get(metric.name) for job, _ in lines if job.plan and metric]
        bounds = {bound for bound in expected if bound is not None}
        for each in bounds:
            bound(axes, each, f"expected {each:g}")
        axes.set_xlabel("iteration")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    ends = [
        f"{job.node or 'all nodes'}: {counted(len(p), 'iteration')}, {p[0][1]:.4g} to {p[-1][1]:.4g}"
        for job, p in lines
    ]
    return Plot(label, f"{label} by iteration; {'; '.join(ends)}", drawn(draw, legend=len(lines) > 1))


def drawn(draw: Callable[[Axes], None], legend: bool = False, top: float = 0.95) -> str:
    """A plot as a data URI, up to its `top` (fraction of the height). Text in it is text as it stands: nothing of a
    node's name is read as TeX."""
    with _plain():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, HEIGHT))  # with a layout engine a page takes twice the time
        axes = figure.add_axes((0.1, 0.17, 0.88, top - 0.17))
        draw(axes)
        axes.grid(True, color=_GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        plain(axes)
        if legend:
            axes.legend(fontsize=7, frameon=False, labelcolor=_INK, ncols=2)
        return _svg(figure)


def plain(axes: Axes) -> None:
    """The frame and the words beside it, in colours that follow the theme."""
    for side in axes.spines.values():
        side.set_color(_GRID)
    axes.tick_params(colors=_INK, labelsize=8)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.xaxis.label.set_fontsize(8)
    axes.xaxis.get_offset_text().set_color(_INK)
    axes.yaxis.get_offset_text().set_color(_INK)


def points(axes: Axes, xs: Sequence[Any], ys: Sequence[float], name: str) -> None:
    """Single values; they may be so many that they are an image inside the image."""
    axes.plot(
        xs, ys, color=_COLOURS[0], linestyle="", marker="o", markersize=4, label=name, rasterized=len(xs) > POINTS
    )


def this_one(axes: Axes, x: Any, y: float, worse: bool) -> None:
    """The run that the page is about."""
    axes.plot([x], [y], color=_BAD if worse else _COLOURS[2], linestyle="", marker="D", markersize=8, label="this run")


def band(axes: Axes, low: float, high: float, centre: float, name: str) -> None:
    """Where values usually lie."""
    axes.axhspan(low, high, color=_COLOURS[0], alpha=0.15, linewidth=0, label=name)
    axes.axhline(centre, color=_COLOURS[0], linewidth=0.8)


def bound(axes: Axes, value: float, words: str) -> None:
    """What a value has to reach."""
    axes.axhline(value, color=_BAD, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        words, (1, value), xycoords=axes.get_yaxis_transform(), ha="right", va="bottom", color=_BAD, fontsize=8
    )


def line(axes: Axes, xs: Sequence[Any], ys: Sequence[float], number: int, name: str, marked: bool = False) -> None:
    axes.plot(
        xs,
        ys,
        color=_COLOURS[number % len(_COLOURS)],
        linestyle=_DASHES[number // len(_COLOURS) % len(_DASHES)],
        linewidth=1.4,
        marker="o" if marked else None,
        label=name if not name.startswith("_") else f" {name}",  # matplotlib hides labels that begin so
        rasterized=len(xs) > POINTS,
    )


def mark(axes: Axes, x: Any, words: str) -> None:
    axes.axvline(x, color=_BAD, linewidth=1.4)
    axes.annotate(
        words, (x, 1), xycoords=axes.get_xaxis_transform(), ha="right", va="top", color=_BAD, fontsize=8, rotation=90
    )


def verdicts(cells: Sequence[Sequence[Verdict | None]], nodes: Sequence[str], columns: Sequence[str]) -> str:
    """Nodes by findings as one image: a row for each node, in inventory order."""
    with _plain():
        from matplotlib.figure import Figure

        size = (max(6.4, 0.16 * len(columns) + 2), max(3.0, 0.022 * len(nodes) + 2))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.imshow([[VERDICT_COLOURS[cell] for cell in row] for row in cells], aspect="auto", interpolation="nearest")
        axes.set_xticks(range(len(columns)), [name[:40] for name in columns], rotation=90, fontsize=6)
        step = max(len(nodes) // 32, 1)
        axes.set_yticks(range(0, len(nodes), step), [name[:40] for name in nodes[::step]], fontsize=6)
        axes.tick_params(colors=_INK)
        for side in axes.spines.values():
            side.set_color(_GRID)
        return _svg(figure)


def heat(rows: Sequence[Sequence[float | None]], names: Sequence[str]) -> str:
    """A value for every pair of nodes; a pair without one stays blank."""
    with _plain():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH, WIDTH * 0.8), layout="constrained")
        axes = figure.add_subplot()
        values = [[float("nan") if value is None else value for value in row] for row in rows]
        image = axes.imshow(values, aspect="auto", interpolation="nearest", cmap="cividis")
        step = max(len(names) // 24, 1)
        axes.set_xticks(range(0, len(names), step), names[::step], rotation=90)
        axes.set_yticks(range(0, len(names), step), names[::step])
        axes.set_xlabel("receiver")
        axes.set_ylabel("sender", fontsize=8)
        plain(axes)
        axes.tick_params(labelsize=6)
        bar = figure.colorbar(image, ax=axes)
        bar.ax.tick_params(colors=_INK, labelsize=7)
        return _svg(figure)


@contextmanager
def _plain() -> Iterator[None]:
    """matplotlib without TeX, without words on standard error, and with text that stays text."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import warnings

    import matplotlib

    with warnings.catch_warnings(), matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever a user's matplotlibrc says
        matplotlib.rcParams["text.parse_math"] = False
        matplotlib.rcParams["svg.fonttype"] = "none"
        matplotlib.rcParams["svg.hashsalt"] = "shakedown"  # or no two pages of a run were the same
        warnings.simplefilter("ignore")  # characters that no font here has
        yield


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    end = text.index(">") + 1
    for colour, name in _VARIABLES.items():
        text = text.replace(colour, f"var({name})")
    return "data:image/svg+xml;base64," + base64.b64encode((text[:end] + _STYLE + text[end:]).encode()).decode()
