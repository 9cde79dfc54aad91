"""The report's page, in Chromium: who reads it, with what, and what it must never do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from shakedown.ledger.history import History, JobRow, RunRow
from shakedown.report.formats import Remembered, text_of
from tests.reports import HOSTILE, a_full_run, a_run, drifted, hostile, many
from tests.system import ensure

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    ensure(["chromium"])
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS, timeout=120_000)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a text as a file, as a person does. Whatever the page asks for beyond itself fails the test, as does
    anything that its own policy had to stop."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(120_000)  # of a machine that does much else
    asked: list[str] = []
    said: list[str] = []

    def opened(text: str, scheme: Any = "light", path: Path | None = None) -> Page:
        file = path or tmp_path / "report.html"
        file.write_text(text)
        page = context.new_page()
        page.emulate_media(color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield opened
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == [] == said


def failed_run(tmp_path: Path) -> str:
    """A run that shows all that a page can have: actions, figures, plots, gates, nodes and a log."""
    return text_of(a_run(tmp_path, nodes=3, line="Traceback (most recent call last):\n  File x\nValueError: x"), "html")


def rows(page: Page, section: str) -> list[str]:
    """The rows of a section's table that are to be seen."""
    return page.locator(f"section[aria-labelledby={section}] tbody tr:visible").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page: Open, tmp_path: Path, scheme: str) -> None:
    job = JobRow(job="together", recipe="x", verdict="ok", nodes=1, figures={"mem_usage": 1}, units={"mem_usage": ""})
    row = RunRow(
        run_id="r1",
        kind="run",
        at=datetime(2026, 11, 23, tzinfo=UTC),
        finished_at=None,
        verdict="ok",
        inventory="rack.py",
        nodes=1,
        wrong="",
        not_ok=0,
        kept_at="",
        jobs=[job],
    )
    full = a_full_run(tmp_path)
    for document in (full, drifted(), Remembered(History(runs=[row]))):
        text = text_of(document, "html")
        page = open_page(text, scheme)
        page.evaluate(AXE.read_text())  # beside the page's policy, which lets no script of others in
        found = page.evaluate("axe.run()")
        assert len(found["passes"]) > 15, "it looked"
        assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]] == []


def test_search_and_filter_work_by_keyboard(open_page: Open) -> None:
    page = open_page(text_of(drifted(), "html"))
    assert len(rows(page, "findings")) == 2 and len(rows(page, "grid")) == 3
    page.keyboard.press("/")
    page.keyboard.type("node02")
    expect(page.locator("#found")).to_contain_text(" of ", timeout=120_000)
    assert rows(page, "findings") == []
    assert len(rows(page, "grid")) == 1, "node02 is in node[01-02]"
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_empty(timeout=120_000)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # fail
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # unknown
    expect(page.locator("#found")).to_contain_text(" of ", timeout=120_000)
    assert ["thp" in row for row in rows(page, "findings")] == [True]
    assert page.locator("#found").get_attribute("role") == "status", "a screen reader is told the count"


def test_what_nodes_say_is_text(open_page: Open, tmp_path: Path) -> None:
    page = open_page(text_of(hostile(), "html"))
    assert page.locator("section[aria-labelledby=findings] tbody th").inner_text().startswith("<script>alert(1)")
    assert page.locator("script").count() == 2 and page.locator("section img, section script").count() == 0
    run = a_run(tmp_path / "runs", nodes=2, line=f"Traceback (most recent call last):\n  File x\nE: {HOSTILE}")
    page = open_page(text_of(run, "html"))
    assert "<script>alert(1)</script>" in page.locator("#logs ~ article tr.bad td").inner_text()


def test_a_script_that_got_in_would_not_run(open_page: Open, tmp_path: Path, browser: Browser) -> None:
    """The page's policy is in force: what is written into it later does not run and loads nothing."""
    text = text_of(drifted(), "html").replace(
        "</main>", "<script>document.title='gone'</script><img src='http://localhost:9/x'></main>"
    )
    page = browser.new_page()
    page.set_default_timeout(120_000)
    stopped: list[str] = []
    page.on("console", lambda message: stopped.append(message.text))
    (tmp_path / "x.html").write_text(text)
    page.goto((tmp_path / "x.html").as_uri())
    assert page.title() != "gone"
    assert len([said for said in stopped if "Content Security Policy" in said]) == 2
    page.close()


def test_links_lead_to_the_line_and_to_the_log(open_page: Open, tmp_path: Path) -> None:
    run = a_run(tmp_path, nodes=2, line="Traceback (most recent call last):\n  File x\nValueError: x")
    assert run.directory is not None
    page = open_page(text_of(run, "html"), path=run.directory / "report.html")
    shown = page.locator("section[aria-labelledby=todo] a[href^='#log-']").first
    shown.press("Enter")
    assert page.evaluate("document.querySelector(':target').className") == "bad"
    assert "ValueError: x" in page.locator(":target").inner_text()
    page.get_by_role("link", name="logs/node02/leader.log").press("Enter")
    page.wait_for_url("**/leader.log")
    assert "ValueError: x" in page.locator("body").inner_text()


def test_plots_say_in_words_what_they_show(open_page: Open, tmp_path: Path) -> None:
    page = open_page(failed_run(tmp_path))
    images = page.locator("#plots ~ .plots img")
    assert images.count() == 3, "no line of this log has tokens a second"
    assert images.evaluate_all("all => all.every(one => one.complete && one.naturalWidth > 300)")
    assert "20 iterations" in (images.first.get_attribute("alt") or "")


def test_a_rack_on_its_worst_day_stays_light(open_page: Open) -> None:
    """30,720 findings, 12,000 of them different from each other: counted, and not all of them listed. How long the page
    takes to open stands in docs/developers/accuracy.md."""
    text = text_of(many(), "html")
    assert len(text.encode()) < 5_000_000
    page = open_page(text)
    assert page.get_by_text("more findings are not on this page").count() == 1
    assert page.locator("section[aria-labelledby=grid] img").count() == 1
    assert page.evaluate("document.querySelectorAll('*').length") < 40_000
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut off"
    page.locator("#query").fill("node117")
    expect(page.locator("#found")).to_contain_text(" of ", timeout=120_000)
    assert 0 < len(rows(page, "todo")) < 200


def test_it_prints(open_page: Open, tmp_path: Path) -> None:
    page = open_page(failed_run(tmp_path), "dark")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("#search").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_all_is_there(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(120_000)
    page = context.new_page()
    (tmp_path / "x.html").write_text(text_of(drifted(), "html"))
    page.goto((tmp_path / "x.html").as_uri())
    assert page.locator("tbody tr").count() > 4 and page.locator("#search").is_hidden()
    context.close()
