"""Links of a page: the files and the headings that they lead to."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_LINK = re.compile(
    r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$|(?<!\\)\[[^\]]+\](?<!\\)\[([^\]]+)\]", re.MULTILINE
)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def dead(page: Path) -> list[str]:
    """The links of a page that lead nowhere. An address outside is not asked for; it has to be https."""
    text = page.read_text("utf-8")
    prose = _CODE.sub("", _FENCE.sub("", text))
    found = []
    for inline, defined, named in _LINK.findall(prose):
        target = inline or defined
        if named:
            if f"\n[{named}]: " not in text:
                found.append(f"[{named}]")
        elif not target.startswith("https://") and not _leads(page, target):
            found.append(target)
    return found


def _leads(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    return path.exists() and (not anchor or anchor in anchors(path))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    return {anchor(heading) for heading in _HEADING.findall(text)}


def anchor(heading: str) -> str:
    """Lower case, no punctuation, a hyphen for each blank."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
