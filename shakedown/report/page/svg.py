"""Plots as SVG images in data URIs, from few parts: lines, points, a band, a bound, a mark, coloured cells.

As images they can run nothing, load nothing and match no style of the page. Colours of lines and text are variables in
each image's own style, which follows the reader's light or dark theme.
"""

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from html import escape

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
INK, BAD = "var(--ink)", "var(--bad)"
HEAT = ((0, 34, 78), (124, 123, 120), (254, 232, 56))  # low, middle, high: lighter throughout, for any colour vision

Point = tuple[float, float]
Place = Callable[[float, float], Point]


def _theme(colours: Sequence[str], *others: str) -> str:
    names = ("--ink", "--grid", "--bad", *(f"--c{number}" for number in range(len(colours))))
    return ";".join(f"{name}:{colour}" for name, colour in zip(names, (*others, *colours), strict=True))


_STYLE = (
    f"svg{{{_theme(_LIGHT, '#33373d', '#d5d9de', '#b3261e')}}}@media screen and (prefers-color-scheme:dark)"
    f"{{svg{{{_theme(_DARK, '#c9ced6', '#3a4048', '#ff8a80')}}}}}"
)


class Chart:
    """One plot of values over iterations, seconds or days (`days`: x is in seconds since 1970)."""

    def __init__(self, x_label: str = "", days: bool = False) -> None:
        self.x_label, self.days = x_label, days
        self.above: list[tuple[float, str]] = []  # ticks of a second axis, and its name
        self.above_label = ""
        self._xs: list[float] = []
        self._ys: list[float] = []
        self._parts: list[Callable[[Place], str]] = []
        self._keys: list[tuple[str, str]] = []

    def line(self, points: Sequence[Point], number: int, name: str, marked: bool = False) -> None:
        """Draw a line, interrupted where a value has no place; `number` chooses the colour and the dashes."""
        dashes = _DASHES[number // len(_LIGHT) % len(_DASHES)]
        colour = f"var(--c{number % len(_LIGHT)})"
        style = f'fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dashes}"'
        self._reach(points)
        self._parts.append(lambda place: f'<path {style} d="{_path(points, place)}"/>')
        if marked:
            self._parts.append(lambda place: _dots(points, place, colour))
        self._keys.append((f'<path {style} d="M0 0h18"/>', name))

    def points(self, points: Sequence[Point], name: str) -> None:
        """Draw single values."""
        self._reach(points)
        self._parts.append(lambda place: _dots(points, place, "var(--c0)"))
        self._keys.append(('<circle cx="9" r="3" fill="var(--c0)"/>', name))

    def diamond(self, point: Point, name: str, bad: bool) -> None:
        """Draw the one value that the plot is about."""
        colour = BAD if bad else "var(--c2)"

        def draw(x: float, y: float) -> str:
            return f'<path d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" fill="{colour}"/>'

        self._reach([point])
        self._parts.append(lambda place: draw(*place(*point)))
        self._keys.append((draw(9, 0), name))

    def band(self, low: float, high: float, centre: float, name: str) -> None:
        """Draw where values usually lie."""
        self._ys += [low, high]

        def draw(place: Place) -> str:
            (_, top), (_, bottom), (_, middle) = place(0, high), place(0, low), place(0, centre)
            area = f'<rect x="{_LEFT}" y="{top:.1f}" width="{_RIGHT - _LEFT}" height="{bottom - top:.1f}"'
            return f'{area} fill="var(--c0)" opacity=".15"/>' + _rule(f"M{_LEFT} {middle:.1f}H{_RIGHT}", "var(--c0)")

        self._parts.append(draw)
        self._keys.append(('<rect y="-5" width="18" height="10" fill="var(--c0)" opacity=".15"/>', name))

    def bound(self, y: float, words: str) -> None:
        """Draw what a value has to reach."""
        self._ys.append(y)

        def draw(place: Place) -> str:
            height = place(0, y)[1]
            return _rule(f"M{_LEFT} {height:.1f}H{_RIGHT}", BAD, "5 4")

        self._parts.append(draw)
        self._keys.append((_rule("M0 0h18", BAD, "5 4"), words))

    def mark(self, x: float, words: str) -> None:
        """Draw a moment, with what happened then."""
        self._xs.append(x)

        def draw(place: Place) -> str:
            at, top = place(x, 0)[0], self._top
            return _rule(f"M{at:.1f} {top}v{_HEIGHT}", BAD) + _text(words, at - 3, top + 3, "end", BAD, turned=True)

        self._parts.append(draw)

    def image(self, legend: bool = True) -> str:
        """Return the plot as a data URI."""
        (left, right), (low, high) = _span(self._xs, 0.03, _DAY if self.days else 0.0), _span(self._ys, 0.06)
        top, bottom = self._top, self._top + _HEIGHT

        def place(x: float, y: float) -> Point:
            return (
                _LEFT + (x - left) / (right - left) * (_RIGHT - _LEFT),
                bottom - (y - low) / (high - low) * _HEIGHT,
            )

        parts = []
        for y, words in _numbers(low, high, 6):
            height = place(0, y)[1]
            parts += [_rule(f"M{_LEFT} {height:.1f}H{_RIGHT}"), _text(words, _LEFT - 5, height + 3, "end")]
        for x, words in _times(left, right) if self.days else _numbers(left, right, 8, 1):
            at = place(x, 0)[0]
            parts += [_rule(f"M{at:.1f} {top}v{_HEIGHT}"), _text(words, at, bottom + 13, "middle")]
        above = [(x, words) for x, words in self.above if left <= x <= right]
        parts += [_text(words, place(x, 0)[0], top - 5, "middle") for x, words in above]
        for words, y in ((self.above_label, top - 19), (self.x_label, bottom + 26)):
            parts.append(_text(words, (_LEFT + _RIGHT) / 2, y, "middle"))
        parts += [draw(place) for draw in self._parts]
        end = bottom + (32 if self.x_label else 18)
        keys = self._keys if legend else []
        columns = 2 if all(len(name) <= 42 for _, name in keys) else 1
        for number, (drawing, name) in enumerate(keys):
            x, y = _LEFT + number % columns * (_RIGHT - _LEFT) // 2, end + 8 + number // columns * 14
            parts.append(f'<g transform="translate({x} {y})">{drawing}{_text(name, 24, 3)}</g>')
        return _svg(_WIDTH, end + 14 * math.ceil(len(keys) / columns) + 4, parts)

    @property
    def _top(self) -> int:
        return 34 if self.above else 8

    def _reach(self, points: Sequence[Point]) -> None:
        self._xs += [x for x, y in points if _drawn(y)]
        self._ys += [y for _, y in points if _drawn(y)]


def cells(
    rows: Sequence[bytes], left: Sequence[str], below: Sequence[str], size: Point, ends: Point | None = None
) -> str:
    """Return coloured cells as a data URI, with names of rows and columns. `rows` hold four bytes a cell (red, green,
    blue, opacity); `ends` are the least and the largest value, for a scale of `HEAT` beside the cells of pairs."""
    width, height = size
    left, below = ([name[:40] for name in names] for names in (left, below))
    start = 12 + 5.2 * max((len(name) for name in left), default=0)
    at = start + 4 + (14 if ends else 0)
    columns = len(rows[0]) // 4 if rows else 0
    data = base64.b64encode(_png(rows, columns)).decode()
    parts = [
        f'<image x="{at:.0f}" y="4" width="{width:.0f}" height="{height:.0f}" preserveAspectRatio="none" '
        f'image-rendering="pixelated" href="data:image/png;base64,{data}"/>',
        f'<rect x="{at:.0f}" y="4" width="{width:.0f}" height="{height:.0f}" fill="none" stroke="var(--grid)"/>',
    ]
    for number in range(0, len(left), max(len(left) // 32, 1)):
        y = 4 + (number + 0.5) / len(left) * height
        parts.append(_text(left[number], at - 4, y + 3, "end", size=8))
    for number in range(0, len(below), max(math.ceil(len(below) / (width / 9)), 1)):
        x = at + (number + 0.5) / len(below) * width
        parts.append(_text(below[number], x + 3, height + 8, "end", size=8, turned=True))
    end = height + 20 + 5.2 * max((len(name) for name in below), default=0)
    right = at + width + 8
    if ends is not None:
        stops = "".join(f'<stop offset="{n / 2}" stop-color="rgb{colour}"/>' for n, colour in enumerate(HEAT))
        parts += [
            f'<linearGradient id="heat" x2="0" y1="1" y2="0">{stops}</linearGradient>',
            f'<rect x="{right}" y="4" width="14" height="{height}" fill="url(#heat)"/>',
            *(_text(decimal(y, 4), right + 18, 8 + (1 - share) * height) for share, y in enumerate(ends)),
            _text("receiver", at + width / 2, end, "middle"),
            _text("sender", 10, height / 2, "middle", turned=True),
        ]
        right, end = right + 66, end + 8
    return _svg(right, end, parts)


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
    columns: dict[int, list[Point]] = {}
    for point in pixels:
        columns.setdefault(int(point[0]), []).append(point)
    return [f(column, key=lambda point: point[1]) for column in columns.values() for f in (min, max)]


def _dots(points: Sequence[Point], place: Place, colour: str) -> str:
    pixels = dict.fromkeys((round(px), round(py)) for px, py in (place(x, y) for x, y in points if _drawn(y)))
    return "".join(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in pixels)


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
        fixed = digits < 6 and large < 1e7
        yield (
            value,
            f"{value:.{digits}f}" if fixed else decimal(value, max(math.floor(math.log10(large / step)), 0) + 2),
        )


def _times(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Yield round times between two, with their text, in the zone of who writes the page."""
    step = next((step for step in _TIMES if step * 6 >= high - low), math.ceil((high - low) / 6 / _DAY) * _DAY)
    shape = "%Y-%m-%d" if step >= _DAY else "%m-%d %H:%M"
    ahead = (datetime.fromtimestamp(high).astimezone().utcoffset() or timedelta()).total_seconds()
    for number in range(math.ceil((low + ahead) / step), math.floor((high + ahead) / step) + 1):
        at = number * step - ahead
        yield at, datetime.fromtimestamp(at, timezone(timedelta(seconds=ahead))).strftime(shape)


def _rule(path: str, colour: str = "var(--grid)", dashes: str = "none") -> str:
    return f'<path d="{path}" stroke="{colour}" stroke-dasharray="{dashes}"/>'


def _text(
    words: str,
    x: float,
    y: float,
    anchor: str = "start",
    fill: str = "var(--ink)",
    size: int = 10,
    turned: bool = False,
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}"{turn}'
    return f"<text {place}>{escape(printable(words, 80))}</text>" if words else ""


def _png(rows: Sequence[bytes], columns: int) -> bytes:
    """Return the pixels as a PNG file: four bytes each, eight bits a colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, len(rows), 8, 6, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif"><style>{_STYLE}</style>{"".join(parts)}</svg>'
    )
    text = text.translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})  # of which XML has none
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode("utf-8", "replace")).decode()
