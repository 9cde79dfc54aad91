"""python -m bench.page [--runs 5] [--write]: how long the report of a rack takes to be written and to be opened.

512 nodes with 60 findings each: on a good day, and on a day on which nearly every node is odd in its own way. Opened in
headless Chromium from a file: from the start of the navigation to the end of the first frame after the load event.
`--write` puts the table into docs/developers/accuracy.md between its marks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from shakedown.report.formats import Findings, text_of
from tests.reports import many

PAGE = Path(__file__).resolve().parents[1] / "docs" / "developers" / "accuracy.md"
BEGIN, END = "<!-- opening: begin -->", "<!-- opening: end -->"
_FRAME = "() => new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"


def main() -> None:
    """Measure, print the table, and keep it where that is asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    wanted = parser.parse_args()
    lines = ["| 512 nodes, 60 findings each | size | elements | written in | opened in |", "|---|---|---|---|---|"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for name, document in (("3 nodes differ", many(alike=True)), ("each node differs in its own way", many())):
            lines.append(_row(browser, Path(folder), name, document, wanted.runs))
        browser.close()
    table = "\n".join(lines)
    print(table)
    if wanted.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}", "utf-8")


def _row(browser: Browser, folder: Path, name: str, document: Findings, runs: int) -> str:
    file = folder / "report.html"
    written, opened, elements = [], [], 0
    for _ in range(runs):
        began = time.perf_counter()
        text = text_of(document, "html")
        written.append(time.perf_counter() - began)
        file.write_text(text, "utf-8")
        page = browser.new_page()
        page.goto(file.as_uri())
        opened.append(float(page.evaluate(_FRAME)) / 1000)
        elements = int(page.evaluate("document.querySelectorAll('*').length"))
        page.close()
    size = file.stat().st_size / 1e6
    return (
        f"| {name} | {size:.2f} MB | {elements:,} | {statistics.median(written):.2f} s "
        f"| {statistics.median(opened):.2f} s |"
    )


if __name__ == "__main__":
    main()
