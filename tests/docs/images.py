"""python -m tests.docs.images PASSED FAILED (make screenshots): pictures of the pages of two real runs, in docs/images.

They are made by hand when the page has changed: fonts differ from one machine to the next. The failed run of today is
`make smoke` with one rank killed by SIGKILL.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.docs.blocks import DOCS


def main(passed: str, failed: str) -> None:
    """Write the pictures of the two run directories."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for name, run in (("passed", passed), ("failed", failed)):
            page = browser.new_page(viewport={"width": 1100, "height": 800}, color_scheme="light")
            page.goto((Path(run).resolve() / "report.html").as_uri())
            page.screenshot(path=DOCS / "images" / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
