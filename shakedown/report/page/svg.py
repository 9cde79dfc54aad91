"""Plots as SVG images in data URIs, which can run and load nothing. Their own style follows the reader's light or dark
theme. The drawing is the template `plot.svg`."""

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from shakedown.common.lists import grouped
from shakedown.common.text import decimal, printable

# After Okabe and Ito's palette, which people with any kind of colour vision tell apart, without black and yellow.
_LIGHT = ("#0072b2", "#b97f00", "#009e73", "#b5538a", "#2f8fc4", "#d55e00")  # darker where white asks for it
_DARK = ("#56b4e9", "#e69f00", "#2bc48f", "#cc79a7", "#9ad1f2", "#ff8a4c")
_DASHES = ("none", "6 3", "6 3 1 3", "1 3")
_WIDTH, _HEIGHT = 640, 210  # of a frame and the words left of it: what is above and below comes on top
_LEFT, _RIGHT = 58, 632
_POINTS = 1000  # of one line that are drawn as they are; of more, the lowest and the highest in each column of pixels
_HOUR, _DAY = 3600, 86400
_TIMES = (60, 300, 900, 1800, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 364)))
HEAT = ((0, 34, 78), (124, 123, 120), (254, 232, 56))  # low, middle, high: lighter throughout, for any colour vision

Point = tuple[float, float]
Place = Callable[[float, float], Point]


class Chart:
    """One plot of values over iterations, seconds or days (`days`: x is in seconds since 1970)."""

    def __init__(self, x_label: str = "", days: bool = False) -> None:
        self.x_label, self.days = x_label, days
        self.above: list[tuple[float, str]] = []  # ticks of a second axis, and its name
        self.above_label = ""
        self._xs: list[float] = []
        self._ys: list[float] = []
        self._items: list[dict[str, Any]] = []

    def line(self, points: Sequence[Point], number: int, name: str, marked: bool = False) -> None:
        """Draw a line, interrupted where a value has no place; `number` chooses the colour and the dashes."""
        dashes = _DASHES[number // len(_LIGHT) % len(_DASHES)]
        self._add("line", name, points, colour=f"var(--c{number % len(_LIGHT)})", dashes=dashes, marked=marked)

    def points(self, points: Sequence[Point], name: str) -> None:
        """Draw single values."""
        self._add("points", name, points, colour="var(--c0)", marked=True)

    def diamond(self, point: Point, name: str, bad: bool) -> None:
        """Draw the one value that the plot is about."""
        self._add("diamond", name, [point], colour="var(--bad)" if bad else "var(--c2)")

    def band(self, low: float, high: float, centre: float, name: str) -> None:
        """Draw where values usually lie."""
        if _drawn(low) and _drawn(high) and _drawn(centre):
            self._ys += [low, high]
            self._add("band", name, low=low, high=high, centre=centre)

    def bound(self, y: float, words: str) -> None:
        """Draw what a value has to reach."""
        if _drawn(y):
            self._ys.append(y)
            self._add("bound", words, y=y)

    def mark(self, x: float, words: str) -> None:
        """Draw a moment, with what happened then."""
        self._xs.append(x)
        self._add("mark", words, x=x)

    def _add(self, kind: str, words: str, points: Sequence[Point] = (), **more: Any) -> None:
        self._xs += [x for x, y in points if _drawn(y)]
        self._ys += [y for _, y in points if _drawn(y)]
        self._items.append({"kind": kind, "words": words, "points": points, "marked": False, **more})

    def image(self, legend: bool = True) -> str:
        """Return the plot as a data URI."""
        (left, right), (low, high) = _span(self._xs, 0.03, _DAY if self.days else 0.0), _span(self._ys, 0.06)
        top = 34 if self.above else 8
        bottom = top + _HEIGHT

        def place(x: float, y: float) -> Point:
            across, up = (x - left) / (right - left), (y - low) / (high - low)
            return _LEFT + across * (_RIGHT - _LEFT), bottom - up * _HEIGHT

        end = bottom + (32 if self.x_label else 18)
        keys = [item for item in self._items if item["kind"] != "mark"] if legend else []
        columns = 2 if all(len(item["words"]) <= 42 for item in keys) else 1
        return _svg(
            _WIDTH,
            end + 14 * math.ceil(len(keys) / columns) + 4,
            chart=self,
            place=place,
            top=top,
            bottom=bottom,
            heights=_numbers(low, high, 6),
            widths=_times(left, right) if self.days else _numbers(left, right, 8, 1),
            above=[(x, words) for x, words in self.above if left <= x <= right],
            items=self._items,
            keys=[
                (_LEFT + number % columns * (_RIGHT - _LEFT) // 2, end + 8 + number // columns * 14, item)
                for number, item in enumerate(keys)
            ],
        )


def cells(
    rows: Sequence[bytes], left: Sequence[str], below: Sequence[str], size: Point, ends: Point | None = None
) -> str:
    """Return coloured cells as a data URI, with names of rows and columns. `rows` hold four bytes a cell (red, green,
    blue, opacity); `ends` are the least and the largest value, for a scale of `HEAT` beside the cells of pairs."""
    width, height = size
    left, below = ([name[:40] for name in names] for names in (left, below))
    at = 16 + 5.2 * max((len(name) for name in left), default=0) + (14 if ends else 0)
    end = height + 20 + 5.2 * max((len(name) for name in below), default=0)
    right = at + width + 8
    step, stride = max(len(left) // 32, 1), max(math.ceil(len(below) / (width / 9)), 1)
    return _svg(
        right + 66 if ends else right,
        end + 8 if ends else end,
        chart=None,
        at=at,
        size=size,
        data=base64.b64encode(_png(rows, len(rows[0]) // 4 if rows else 0)).decode(),
        rows=[(left[n], 7 + (n + 0.5) / len(left) * height) for n in range(0, len(left), step)],
        columns=[(below[n], at + (n + 0.5) / len(below) * width + 3) for n in range(0, len(below), stride)],
        ends=ends,
        heat=HEAT,
        scale=right,
        below=end,
    )


def heat_colour(share: float) -> bytes:
    """Return the cell of a value, by how far it lies between the least (0) and the largest (1)."""
    low, high = (HEAT[0], HEAT[1]) if share < 0.5 else (HEAT[1], HEAT[2])
    part = 2 * share % 1 if share < 1 else 1.0
    return bytes([*(round(a + (b - a) * part) for a, b in zip(low, high, strict=True)), 255])


def _path(points: Sequence[Point], place: Place) -> str:
    """Return a line through the points; a value without a place interrupts it."""
    pieces: list[list[Point]] = [[]]
    for x, y in points:
        if _drawn(y):
            pieces[-1].append(place(x, y))
        elif pieces[-1]:
            pieces.append([])
    return "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in _thinned(piece)) for piece in pieces if piece)


def _thinned(pixels: Sequence[Point]) -> Sequence[Point]:
    if len(pixels) <= _POINTS:
        return pixels
    columns = grouped((int(point[0]), point) for point in pixels).values()
    return [f(column, key=lambda point: point[1]) for column in columns for f in (min, max)]


def _dots(points: Sequence[Point], place: Place) -> Iterable[tuple[int, int]]:
    return dict.fromkeys((round(px), round(py)) for px, py in (place(x, y) for x, y in points if _drawn(y)))


def _drawn(value: float) -> bool:
    """Return whether a value has a place on an axis: a log may say nan, inf or 1e308."""
    return abs(value) < 1e100


def _span(values: Sequence[float], margin: float, alone: float = 0.0) -> tuple[float, float]:
    """Return the least and the largest value, with some space on either side; `alone`: of a value by itself."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    space = margin * (high - low) or alone or 0.05 * abs(low)
    space = space if space > 1e-100 else 1.0
    return low - space, high + space


def _numbers(low: float, high: float, most: int, least: float = 0.0) -> Iterator[tuple[float, str]]:
    """Yield round numbers between two values, with their text: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = max(next(power * times for times in (1, 2, 5, 10) if power * times * most >= high - low), least)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    large = max(abs(low), abs(high))
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        value = number * step
        shown = max(math.floor(math.log10(large / step)), 0) + 2
        yield value, f"{value:.{digits}f}" if digits < 6 and large < 1e7 else decimal(value, shown)


def _times(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Yield round times between two, with their text, in the zone of who writes the page."""
    step = next((step for step in _TIMES if step * 6 >= high - low), math.ceil((high - low) / 6 / _DAY) * _DAY)
    shape = "%Y-%m-%d" if step >= _DAY else "%m-%d %H:%M"
    ahead = (datetime.fromtimestamp(high).astimezone().utcoffset() or timedelta()).total_seconds()
    for number in range(math.ceil((low + ahead) / step), math.floor((high + ahead) / step) + 1):
        at = number * step - ahead
        yield at, datetime.fromtimestamp(at, timezone(timedelta(seconds=ahead))).strftime(shape)


def _png(rows: Sequence[bytes], columns: int) -> bytes:
    """Return the pixels as a PNG file: four bytes each, eight bits a colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, len(rows), 8, 6, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _theme(colours: Sequence[str], *others: str) -> str:
    names = ("--ink", "--grid", "--bad", *(f"--c{number}" for number in range(len(colours))))
    return ";".join(f"{name}:{colour}" for name, colour in zip(names, (*others, *colours), strict=True))


@cache
def _template() -> Template:
    made = Environment(loader=PackageLoader("shakedown.report.page", ""), autoescape=True, undefined=StrictUndefined)
    made.globals |= {"theme": _theme, "light": _LIGHT, "dark": _DARK, "left": _LEFT, "right": _RIGHT}
    made.filters |= {"path": _path, "dots": _dots, "decimal": decimal}
    made.filters |= {"px": lambda value: f"{value:.1f}", "brief": lambda words: printable(words, 80)}
    return made.get_template("plot.svg")


def _svg(width: float, height: float, **parts: Any) -> str:
    text = _template().render(width=width, height=height, **parts)
    text = text.translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})  # of which XML has none
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode("utf-8", "replace")).decode()
