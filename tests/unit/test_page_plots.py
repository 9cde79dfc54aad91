"""The page's plots: images that are well-formed, whatever a node or a log says."""

from __future__ import annotations

import base64
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shakedown.evidence.results import Timing
from shakedown.gates import Gate
from shakedown.report.overview import overview
from shakedown.report.page.plots import VERDICT_COLOURS, _moments, heat, of_iterations, verdicts
from shakedown.report.page.svg import HEAT, Chart, heat_colour
from shakedown.runs.directory import RunRecord
from shakedown.state.findings import Verdict
from tests.reports import a_run

SVG = "{http://www.w3.org/2000/svg}"
PREFIX = "data:image/svg+xml;base64,"


def parsed(image: str) -> ElementTree.Element:
    assert image.startswith(PREFIX)
    return ElementTree.fromstring(base64.b64decode(image.removeprefix(PREFIX)))


def texts(image: str) -> list[str]:
    return ["".join(text.itertext()) for text in parsed(image).iter(f"{SVG}text")]


def pixels(image: str) -> list[bytes]:
    """The rows of the PNG inside an image."""
    (inner,) = parsed(image).iter(f"{SVG}image")
    png = base64.b64decode(inner.attrib["href"].removeprefix("data:image/png;base64,"))
    width, height = struct.unpack(">II", png[16:24])
    (length,) = struct.unpack(">I", png[33:37])
    data = zlib.decompress(png[41 : 41 + length])
    return [data[row * (4 * width + 1) + 1 : (row + 1) * (4 * width + 1)] for row in range(height)]


def paths(image: str) -> list[str]:
    """The lines of values, which have no fill; rules do not say so."""
    return [path.attrib["d"] for path in parsed(image).iter(f"{SVG}path") if path.get("fill") == "none"]


@given(st.text(max_size=100))
def test_names_are_text_in_an_image_that_is_well_formed(name: str) -> None:
    chart = Chart("iteration")
    chart.line([(1.0, 2.0), (2.0, 3.0)], 0, name)
    chart.mark(1.5, name)
    tags = {element.tag.removeprefix(SVG) for element in parsed(chart.image()).iter()}
    assert tags == {"svg", "style", "path", "text", "g"}


def test_markup_is_no_markup() -> None:
    chart = Chart()
    chart.line([(1.0, 2.0)], 0, "<script>alert(1)</script>&")
    assert "<script>alert(1)</script>&" in texts(chart.image())


@given(st.lists(st.tuples(st.integers(0, 10**9).map(float), st.floats()), max_size=30), st.booleans())
def test_any_values_make_an_image(points: list[tuple[float, float]], days: bool) -> None:
    chart = Chart(days=days)
    chart.line(points, 9, "line", marked=True)
    chart.points(points, "points")
    chart.band(1.0, 3.0, 2.0, "band")
    for path in paths(chart.image())[:1]:
        assert "nan" not in path and "inf" not in path


def test_a_value_that_is_not_finite_interrupts_the_line() -> None:
    chart = Chart()
    chart.line([(1, 1.0), (2, 1.0), (3, float("nan")), (4, 1.0), (5, float("inf")), (6, 1e308), (7, 2.0)], 0, "x")
    assert paths(chart.image(legend=False))[0].count("M") == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e308])
def test_what_has_no_place_on_an_axis_is_left_out(value: float) -> None:
    """A first loss that is no number is a bound of its curve, and earlier runs may have had such figures."""
    chart = Chart("iteration")
    chart.line([(1, value), (2, 1.0), (3, 2.0)], 0, "x")
    chart.bound(value, "has to fall from its start")
    chart.band(0.5, value, 1.0, "usual")
    drawn = " ".join(item.get(name, "") for item in parsed(chart.image()).iter() for name in ("d", "y", "height"))
    assert "nan" not in drawn and "inf" not in drawn


def test_many_points_keep_the_extremes() -> None:
    values = [0.0] * 100_000
    values[31_415], values[77_777] = 5.0, -5.0
    chart = Chart()
    chart.line([(float(x), y) for x, y in enumerate(values)], 0, "x")
    (path,) = paths(chart.image(legend=False))
    heights = [float(point.split()[1]) for point in path.removeprefix("M").split("L")]
    assert len(heights) < 1300
    assert [heights.count(end) for end in (min(heights), max(heights))] == [1, 1]


@pytest.mark.parametrize(
    "low, high, shown",
    [
        (0.0, 10.0, ["0", "2", "4", "6", "8", "10"]),
        (0.00012, 0.00013, ["0.00012", "0.000122", "0.000124", "0.000126", "0.000128", "0.00013"]),
        (3e7, 5e7, ["30000000", "35000000", "40000000", "45000000", "50000000"]),
    ],
)
def test_axes_have_round_numbers(low: float, high: float, shown: list[str]) -> None:
    chart = Chart()
    chart.line([(1, low), (2, high)], 0, "x")
    assert [text for text in texts(chart.image(legend=False)) if text not in ("1", "2")] == [
        text for text in shown if text not in ("1", "2")
    ]


def test_days_are_named_in_utc() -> None:
    chart = Chart(days=True)
    chart.points([(1_790_000_000, 1.0), (1_790_000_000 + 20 * 86400, 2.0)], "earlier")
    assert [text for text in texts(chart.image()) if text.startswith("2026")] == [
        "2026-09-24",
        "2026-10-01",
        "2026-10-08",
    ]


def test_a_day_between_two_times_needs_no_hour() -> None:
    chart = Chart(days=True)
    chart.points([(1_790_000_000, 1.0), (1_790_000_000 + 5 * 86400, 2.0)], "earlier")
    assert [text for text in texts(chart.image(legend=False)) if "09-" in text][:2] == ["2026-09-22", "2026-09-23"]


def test_the_last_time_stands_within_the_plot() -> None:
    chart = Chart(days=True)
    chart.points([(1_795_392_000, 1.0)], "earlier")
    times = [part for part in parsed(chart.image()).iter(f"{SVG}text") if ":" in (part.text or "")]
    assert [part.text for part in times][-1] == "11-24 00:00"
    # Half of a text of this size, in the widest of the page's fonts.
    assert all(float(part.get("x", "0")) + 2.6 * len(part.text or "") <= 640 for part in times)


@pytest.mark.parametrize(
    ("iterations", "planned", "verdict", "marked"),
    [(3, 5, Verdict.FAIL, True), (1, 5, Verdict.FAIL, True), (5, 5, Verdict.FAIL, False), (3, 5, Verdict.OK, False)],
)
def test_a_plot_marks_where_a_failed_job_ended_early(
    tmp_path: Path, iterations: int, planned: int, verdict: Verdict, marked: bool
) -> None:
    run = a_run(tmp_path)
    assert isinstance(run.record, RunRecord)
    (job,) = run.record.jobs
    assert job.plan
    job.plan = job.plan.model_copy(update={"iterations": planned})
    job.iterations = job.iterations[:iterations]
    run.record.gates = [Gate(name="iterations", verdict=verdict, job=job.name)]
    image = of_iterations(overview(run))[0].image
    texts = parsed(image).iter(f"{SVG}text")
    marks = [float(part.get("x", "0")) + 3 for part in texts if part.text == "the job ended here"]
    last = float(paths(image)[0].removeprefix("M").split("L")[-1].split()[0])
    assert marks == ([pytest.approx(last)] if marked else [])


@pytest.mark.parametrize(
    ("name", "verdict", "marked"),
    [
        ("ran_to_its_end", Verdict.FAIL, True),
        ("ran_to_its_end", Verdict.OK, False),
        ("no_failure", Verdict.FAIL, False),
    ],
)
def test_samples_mark_the_end_of_a_job_that_ended_early(
    tmp_path: Path, name: str, verdict: Verdict, marked: bool
) -> None:
    run = a_run(tmp_path)
    assert isinstance(run.record, RunRecord)
    (job,) = run.record.jobs
    run.record.gates = [Gate(name=name, verdict=verdict, job=job.name)]
    found = list(_moments(overview(run), job, Timing(started_at=100.0, finished_at=130.0)))
    assert found == ([(30.0, "the job ended")] if marked else [])


def test_cells_have_the_colours_of_their_verdicts() -> None:
    rows = pixels(verdicts([[Verdict.OK, Verdict.FAIL], [None, Verdict.WARN]], ["a", "b"], ["thp", "mtu"]))
    assert rows == [
        VERDICT_COLOURS[Verdict.OK] + VERDICT_COLOURS[Verdict.FAIL],
        VERDICT_COLOURS[None] + VERDICT_COLOURS[Verdict.WARN],
    ]


def test_pairs_have_colours_from_the_least_to_the_largest() -> None:
    image = heat([[None, 10.0], [30.0, 20.0]], ["a", "b"])
    assert pixels(image) == [bytes(4) + heat_colour(0.0), heat_colour(1.0) + heat_colour(0.5)]
    assert [tuple(heat_colour(share)[:3]) for share in (0.0, 0.5, 1.0)] == list(HEAT)
    assert {"10", "30", "sender", "receiver"} <= {*texts(image)}
    assert pixels(heat([[None]], ["a"])) == [bytes(4)]
