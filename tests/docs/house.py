"""docs/images/house.svg: the rooms on their floors, and which room imports which, from the code itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape

from tests.unit.test_import_direction import FILES, LEVEL, LEVELS, WITH_PYINFRA, imports_in, name_of, room_of

WIDTH, HEIGHT, ACROSS, DOWN = 132, 30, 156, 62
LEGEND = (
    ("#fff3d6", "runs on pyinfra"),
    ("#dcefe0", "travels to the nodes"),
    ("#e6eef8", "the other rooms"),
)


@cache
def imports() -> dict[str, set[str]]:
    """Return for each room the rooms that its files import."""
    found: dict[str, set[str]] = {room_of(name_of(file)): set() for file in FILES}
    for file in FILES:
        room = room_of(name_of(file))
        tops = ("shakedown.", "deploy.", "inventories.")
        found[room] |= {room_of(name) for name in imports_in(file) if name.startswith(tops)} - {room}
    joined = set().union(*found.values())
    return {room: others for room, others in found.items() if others or room in joined}


def arrows(edges: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports that no chain of others implies: the picture stays readable."""
    below: dict[str, set[str]] = {}
    for room in sorted(edges, key=LEVEL.__getitem__):
        below[room] = edges[room].union(*(below[other] for other in edges[room]))
    return {
        (room, other)
        for room, others in edges.items()
        for other in others
        if not any(other in below[between] for between in others)
    }


def floors(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the floors from the bottom up. Floors that import nothing of each other share a line of the picture."""
    lines: list[list[str]] = []
    for level in LEVELS:
        rooms = [room for room in level if room in edges]
        if lines and not any(other in lines[-1] for room in rooms for other in edges[room]):
            lines[-1] += rooms
        else:
            lines.append(rooms)
    return lines


def house() -> str:
    """Draw the picture."""
    edges, lines = imports(), floors(imports())
    shown = sorted(arrows(edges))
    wide = max(map(len, lines)) * ACROSS + 20
    high = len(lines) * DOWN + 50
    middle: dict[str, tuple[float, float]] = {}
    for row, rooms in enumerate(reversed(lines)):
        above = {room: [middle[upper][0] for upper, other in shown if other == room] for room in rooms}
        rooms = sorted(rooms, key=lambda room: sum(above[room]) / len(above[room]) if above[room] else 0)
        for column, room in enumerate(rooms):
            middle[room] = (wide / 2 + (column - (len(rooms) - 1) / 2) * ACROSS, 24 + row * DOWN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="14">',
        "<title>The rooms of Shakedown; an arrow leads from a room to one that it imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#667"/></marker></defs>',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
    ]
    for room, other in shown:
        (left, top), (right, bottom) = middle[room], middle[other]
        parts.append(
            f'<line x1="{left:g}" y1="{top + HEIGHT / 2:g}" x2="{right:g}" y2="{bottom - HEIGHT / 2:g}" stroke="#667" '
            'marker-end="url(#tip)"/>'
        )
    for room, (x, y) in middle.items():
        colour = LEGEND[0 if room in WITH_PYINFRA else 1 if room == "node" else 2][0]
        parts += _box(x - WIDTH / 2, y - HEIGHT / 2, WIDTH, colour, room)
    for column, (colour, text) in enumerate(LEGEND):
        parts += _box(10 + column * 180, high - 34, 170, colour, text)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(x: float, y: float, width: int, colour: str, text: str) -> list[str]:
    return [
        f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{HEIGHT}" rx="4" fill="{colour}" stroke="#667"/>',
        f'<text x="{x + width / 2:g}" y="{y + HEIGHT / 2 + 5:g}" text-anchor="middle" fill="#112">'
        f"{escape(text)}</text>",
    ]
