"""The site builds without a warning, without a dead link and without the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"(https?:[^\"]+)|<link[^>]* href=\"(https?:[^\"]+)")


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build as `make site` does."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-d", str(target / "trees")]
    return subprocess.run(
        [*command, "-b", "html", str(source), str(target / "html")], capture_output=True, text=True, timeout=300
    )


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    ran = build(DOCS, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    built = {path.relative_to(tmp_path / "html").with_suffix("") for path in (tmp_path / "html").rglob("*.html")}
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    assert pages <= built
    assert Path("search") in built
    for page in (tmp_path / "html").rglob("*.html"):
        assert _LOADED.findall(page.read_text("utf-8")) == [], page


def test_a_dead_link_and_a_page_in_no_list_end_the_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(DOCS / "conf.py", source)
    (source / "index.md").write_text("# A page\n\n[gone](gone.md) [no heading](#nowhere)\n")
    (source / "lost.md").write_text("# A page that no list names\n")
    ran = build(source, tmp_path)
    assert ran.returncode != 0
    assert "gone.md" in ran.stderr and "nowhere" in ran.stderr and "lost.md" in ran.stderr
