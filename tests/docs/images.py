"""python -m tests.docs.images (make screenshots): the pictures in docs/images, of the pages that the tests look at too.

They are made by hand when the page has changed: fonts differ from one machine to the next.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from shakedown.report.formats import text_of
from tests.docs.blocks import DOCS
from tests.reports import a_failed_run, a_rack

IMAGES = DOCS / "images"


def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder)
        documents = {
            "report-light": (a_failed_run(root / "runs"), "light", 1150),
            "report-dark": (a_failed_run(root / "again"), "dark", 1150),
            "report-rack": (a_rack(), "light", 900),
        }
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (document, scheme, height) in documents.items():
            page = browser.new_page(viewport={"width": 1100, "height": height}, color_scheme=scheme)
            (root / f"{name}.html").write_text(text_of(document, "html"))
            page.goto((root / f"{name}.html").as_uri())
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
