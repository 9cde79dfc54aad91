"""Which function writes which block of a page, and what every page ought to be now."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.docs import channels, commands, configuration, documents, house, judgement, kernel_words, reports, schemas

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

BLOCKS: dict[str, Callable[[], str]] = {
    "sections": configuration.sections,
    "keys": configuration.keys,
    "settings": judgement.settings,
    "commands": commands.commands,
    "deploys": commands.deploys,
    "verdicts": judgement.verdicts,
    "exit codes": judgement.exit_codes,
    "findings": judgement.findings,
    "gates": judgement.gates,
    "metrics": judgement.metrics,
    "catalogue": judgement.catalogue,
    "documents": documents.documents,
    "channels": channels.listed,
    "recipes": documents.recipes,
    "schemas": schemas.listed,
    "prometheus": reports.prometheus,
    "third party": lambda: f"```sh\n{_script('shakedown/runs/signing/verify.sh').strip()}\n```",
}
_BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- end: \2 -->)", re.DOTALL)


def _script(name: str) -> str:
    """Return a script without what stands before its first command."""
    return (ROOT / name).read_text("utf-8").partition("from here on.\n")[2]


_MEASURED = re.compile(r"<!-- ([a-z ]+): begin -->.*?<!-- \1: end -->", re.DOTALL)
_PLAYED = "# What is said when something is wrong"  # reference/faults.md: tests/lab/faults writes it whole


def pages() -> list[Path]:
    """Every page that a person reads."""
    beside = ("README.md", "CONTRIBUTING.md", "bench/README.md", "tests/lab/README.md", "shakedown/site/README.md")
    return [*(ROOT / name for name in beside), *sorted(DOCS.rglob("*.md"))]


def filled(page: str) -> str:
    """A page with its blocks as they are now. KeyError: no function writes a block of that name."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]().strip()}\n\n{found[4]}", page)


def blocks_of(page: str) -> list[str]:
    """The names of a page's blocks."""
    return [found[2] for found in _BLOCK.finditer(page)]


def written(page: str) -> str:
    """Return what people wrote of a page: without its blocks, and without the tables that a bench writes."""
    return _MEASURED.sub("", "" if page.startswith(_PLAYED) else _BLOCK.sub("", page))


def wanted() -> dict[Path, Callable[[], str]]:
    """Every file that has something generated -> what writes its whole text."""
    texts = {path: path.read_text("utf-8") for path in pages()}
    found: dict[Path, Callable[[], str]] = {
        path: partial(filled, text) for path, text in texts.items() if blocks_of(text)
    }
    found[DOCS / "images" / "house.svg"] = house.house
    found[ROOT / "shakedown/catalogue/kernel_words.json"] = kernel_words.text
    return found | {DOCS / "schemas" / name: partial(schemas.text, model) for name, model in schemas.MODELS.values()}
