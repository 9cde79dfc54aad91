"""The nodes as squares, rack by rack: colour and mark show a node's verdict, and a square leads to what is wrong."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shakedown.common.text import counted, printable
from shakedown.report.overview import Overview
from shakedown.state.findings import Verdict, worst

LABELLED = 512
"""Nodes of a page whose squares have their short names in them."""
LONGEST = 6  # characters of a short name
LINKS = 500  # squares that lead somewhere: a keyboard goes through all of them
_NUMBER = re.compile(r"[0-9]+(?=[^0-9]*$)")


@dataclass(frozen=True)
class Square:
    """One node. `word` is what became of it, and `text` what is wrong."""

    name: str
    verdict: Verdict | None  # None: it was neither judged ok nor bad
    word: str
    text: str = ""
    link: str = ""
    label: str = ""


@dataclass(frozen=True)
class Rack:
    """The nodes of one rack, in inventory order."""

    name: str
    squares: Sequence[Square]
    words: str  # how many are what


def squares(shown: Overview, links: Mapping[str, tuple[str, str]]) -> list[Square]:
    """Return a square for each node. `links`: node -> the place on the page that says what is wrong, and what it is."""
    if shown.fleet:
        return [_square(seen[0].node, seen[0].verdict, "", links) for seen in shown.fleet]
    found = shown.isolation.result.suspects if shown.isolation and shown.isolation.result else []
    suspects = {node for suspect in found if suspect.kind == "node" for node in suspect.nodes}
    made: list[Square] = []
    for node in shown.nodes:
        lost = node.part if node.part in ("excluded", "unreached") else "stopped" if node.stopped else ""
        if node.name in suspects:
            made.append(_square(node.name, Verdict.FAIL, "suspect", links))
        else:
            neutral = bool(lost) and node.verdict.passes
            made.append(_square(node.name, None if neutral else node.verdict, lost, links))
    if made:
        return made
    of_node: dict[str, list[Verdict]] = {}
    for finding in shown.findings:
        of_node.setdefault(finding.node, []).append(finding.verdict)
    return [_square(name, worst(of_node.get(name, [])), "", links) for name in shown.names]


def _square(name: str, verdict: Verdict | None, word: str, links: Mapping[str, tuple[str, str]]) -> Square:
    link, text = links.get(name, ("", ""))
    return Square(name, verdict, word or str(verdict), text, link)


def _severity(square: Square) -> int:
    return square.verdict.severity if square.verdict else 0


def racks(found: Iterable[Square], groups: Mapping[str, str]) -> list[Rack]:
    """Return the squares by rack, the rack with the worst nodes first."""
    of_rack: dict[str, list[Square]] = {}
    for square in found:
        of_rack.setdefault(groups.get(square.name, ""), []).append(square)
    count = sum(map(len, of_rack.values()))
    order = sorted(of_rack.items(), key=lambda item: -max(_severity(square) for square in item[1]))
    made, linked = [], 0
    for name, own in order:
        words = Counter(square.word for square in own).most_common()
        text = f"{counted(len(own), 'node')}: {', '.join(f'{number} {word}' for word, number in words)}"
        labels = _short([square.name for square in own]) if count <= LABELLED else [""] * len(own)
        shown = []
        for square, label in zip(own, labels, strict=True):
            linked += bool(square.link)
            link = square.link if linked <= LINKS else ""
            shown.append(Square(printable(square.name, 200), square.verdict, square.word, square.text, link, label))
        made.append(Rack(printable(name, 60), shown, text))
    return made


def _short(names: Sequence[str]) -> list[str]:
    """Return the last number of each host name, where these tell the nodes of a rack from each other."""
    numbers = [_NUMBER.search(name.partition(".")[0]) for name in names]
    shown = [number[0] if number and len(number[0]) <= LONGEST else "" for number in numbers]
    return shown if len(set(shown)) == len(names) else [""] * len(names)
