"""The report's page, in Chromium: who reads it, with what, and what it must never do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from shakedown.ledger.history import History, JobRow, RunRow, Seen
from shakedown.report.formats import Remembered, text_of
from shakedown.state.findings import Verdict
from tests.reports import HOSTILE, a_full_run, a_rack, a_run, a_run_for_acceptance, drifted, hostile, many
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

    def opened(text: str, scheme: Any = "light", path: Path | None = None, width: int = 1280) -> Page:
        file = path or tmp_path / "report.html"
        file.write_text(text)
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
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
    """The rows of a section's table, or its cards, that are to be seen."""
    return page.locator(f"section[aria-labelledby={section}] :is(tbody tr, .cards > li):visible").all_inner_texts()


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window, so that nobody scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def a_ledger() -> Remembered:
    """One run, and two nodes as it saw them."""
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
    seen = Seen(node="n1", run_id="r1", at=row.at, inventory="rack.py", verdict="fail", part="examined", why="<b>x</b>")
    well = seen.model_copy(update={"node": "n2", "verdict": Verdict.OK, "why": ""})
    return Remembered(History(runs=[row]), [[seen], [well]])


@pytest.mark.parametrize("document", [a_full_run, drifted, a_rack, hostile, a_ledger], ids=lambda made: made.__name__)
def test_axe_finds_nothing_and_nothing_is_cut_off(open_page: Open, tmp_path: Path, document: Any) -> None:
    page = open_page(text_of(document(tmp_path) if document is a_full_run else document(), "html"))
    page.evaluate(AXE.read_text())  # beside the page's policy, which lets no script of others in
    for width, scheme in product((360, 800, 1400), ("light", "dark")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        assert fits(page), (scheme, width)
        if width == 800:
            continue  # laid out as a wider one
        found = page.evaluate("axe.run()")
        assert len(found["passes"]) > 15, "it looked"
        wrong = [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
        assert wrong == [], (scheme, width)


def test_search_and_filter_work_by_keyboard(open_page: Open) -> None:
    page = open_page(text_of(a_rack(), "html"))
    assert len(rows(page, "todo")) == 4 and len(rows(page, "grid")) == 4
    page.keyboard.press("/")
    page.keyboard.type("node301")
    expect(page.locator("#found")).to_contain_text(" of ", timeout=120_000)
    assert ["mtu" in row for row in rows(page, "todo")] == [True], "node301 is in node[300-301]"
    assert len(rows(page, "grid")) == 1
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_empty(timeout=120_000)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # fail
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # unknown
    expect(page.locator("#found")).to_contain_text(" of ", timeout=120_000)
    assert ["drift" in row for row in rows(page, "todo")] == [True, True]
    assert page.locator("#found").get_attribute("role") == "status", "a screen reader is told the count"


def test_on_a_phone_cause_and_remedy_are_in_sight(open_page: Open, tmp_path: Path) -> None:
    page = open_page(failed_run(tmp_path), width=360)
    for words in ("HIP error", "wanted", "remedy"):
        shown = page.locator(f".cards > li :is(p, h3):has-text('{words}'), .remedy").first
        box = shown.bounding_box()
        assert shown.is_visible() and box and box["x"] >= 0 and box["x"] + box["width"] <= 360, words
    for cell in page.locator("td:visible, th:visible").all():
        box = cell.bounding_box()
        assert box and box["x"] + box["width"] <= 360, cell.inner_text()
    labels = page.locator("td[data-label=expected]").first
    assert "expected" in labels.evaluate("cell => getComputedStyle(cell, '::before').content")


def test_the_headline_names_the_node_and_each_node_is_a_square(open_page: Open) -> None:
    page = open_page(text_of(a_rack(), "html"))
    assert page.locator("h1").inner_text() == "✗ Failed: node129.rack7: gpu_count: 7 of 8, wanted always"
    squares = page.locator(".squares > *")
    assert squares.count() == 512 and page.locator(".squares a").count() == 8 + 1 + 2
    assert squares.nth(128).inner_text() == "✗129", "a mark, and not colour alone"
    bad = page.get_by_role("link", name="node129.rack7: fail")
    bad.press("Enter")
    assert "gpu_count" in page.locator(":target").inner_text()
    assert page.locator(".tiles").inner_text().split("\n")[:2] == ["Nodes in the desired state", "✗ 501 of 512"]


def test_a_few_nodes_have_no_search(open_page: Open, tmp_path: Path) -> None:
    assert open_page(failed_run(tmp_path)).locator("#search").count() == 0


def test_a_square_of_the_fleet_leads_to_the_rows_of_its_node(open_page: Open) -> None:
    page = open_page(text_of(a_ledger(), "html"))
    page.get_by_role("link", name="n1: fail").press("Enter")
    assert "<b>x</b>" in page.locator(":target").inner_text()
    page.locator(":target a").press("Enter")
    assert "rack.py" in page.locator(":target").inner_text(), "and from there to the run"


@pytest.mark.parametrize("odd", [False, True])
def test_ten_thousand_nodes_are_a_page_that_opens(open_page: Open, odd: bool) -> None:
    """On a good day, and on one on which each node differs in its own ways."""
    text = text_of(many(10_000, 10, alike=not odd), "html")
    assert len(text.encode()) < 10_000_000
    page = open_page(text)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    page.reload()
    measured = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    assert measured["TaskDuration"] < 60 and fits(page), "docs/developers/speed.md has the time"
    assert page.locator(".squares > *").count() == 10_000


def test_what_nodes_say_is_text(open_page: Open, tmp_path: Path) -> None:
    page = open_page(text_of(hostile(), "html"))
    assert "<script>alert(1)" in page.locator(".cards h3").inner_text()
    assert page.locator("script").count() == 2 and page.locator("section img, section script").count() == 0
    run = a_run(tmp_path / "runs", nodes=2, line=f"Traceback (most recent call last):\n  File x\nE: {HOSTILE}")
    page = open_page(text_of(run, "html"))
    assert "<script>alert(1)</script>" in page.locator("#logs ~ details tr.bad td").inner_text()


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
    """30,720 findings, 12,000 of them different from each other: causes with their number of values, not all of them.
    How long the page takes to open stands in docs/developers/accuracy.md."""
    text = text_of(many(), "html")
    assert len(text.encode()) < 5_000_000
    page = open_page(text)
    assert page.get_by_text(" other values").count() > 100
    assert page.locator("section[aria-labelledby=grid] img").count() == 1
    assert page.evaluate("document.querySelectorAll('*').length") < 40_000
    assert fits(page)
    page.locator("#query").fill("node117")
    expect(page.locator("#found")).to_contain_text(" of ", timeout=120_000)
    assert 0 < len(rows(page, "todo")) < 200


def test_it_prints(open_page: Open, tmp_path: Path) -> None:
    page = open_page(failed_run(tmp_path), "dark")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("nav").is_hidden() and page.get_by_text("What to do").last.is_visible()
    folded = page.locator("details:not([open]) td").first
    assert folded.evaluate("cell => cell.getBoundingClientRect().height") > 0, "what is folded is printed"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_all_is_there(browser: Browser, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(120_000)
    page = context.new_page()
    (tmp_path / "x.html").write_text(text_of(drifted(), "html"))
    page.goto((tmp_path / "x.html").as_uri())
    assert len(rows(page, "todo")) == 2 and len(rows(page, "grid")) == 3
    context.close()


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_an_acceptance_report_fits_and_prints(open_page: Open, tmp_path: Path, width: int) -> None:
    page = open_page(text_of(a_run_for_acceptance(tmp_path), "acceptance"), width=width)
    assert fits(page)
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 15, "it looked"
    assert [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]] == []
    assert len(rows(page, "parts")) > 6 and len(rows(page, "signature")) == 2
    assert not page.locator("details .mono").first.is_visible()
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})  # of an A4 page, with margins of 1 cm
    assert fits(page), "nothing is cut off on paper"
    assert page.locator("details .mono").first.is_visible(), "the serial numbers are on paper"
    assert page.locator(".sign td").first.evaluate("cell => cell.getBoundingClientRect().height") > 40
    assert page.pdf(format="A4").startswith(b"%PDF")
