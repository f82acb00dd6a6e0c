"""The trade-off report in a real browser: it fetches nothing, shows everything, and fits screen, phone and paper."""

import shutil

import pytest
import tradeoff_rows as made

from fedgr_secure.app.tradeoff.report import write_report

pytestmark = pytest.mark.browser

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SECTIONS = [
    "Results",
    "Accuracy against claimed epsilon",
    "The sieve against claimed epsilon",
    "Accuracy against measured leakage",
    "Claims against audits",
    "The strongest attacks",
    "Cost",
    "Beside the paper",
    "Privacy: what is claimed",
    "How to reproduce this page",
]
TOO_WIDE = """() => [...document.querySelectorAll("body *")]
    .filter(one => !one.closest(".scroll") || one.matches(".scroll"))
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
    .map(one => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium, or else playwright's own."""
    from playwright import sync_api

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    rows = made.full()
    return write_report(made.grid(rows), rows, tmp_path_factory.mktemp("report"), "Use <this> & nothing else.")


class Opened:
    """A page with everything that it asked for and complained of."""

    def __init__(self, browser, path, **options):
        self.asked, self.complaints = [], []
        self.page = browser.new_page(**options)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri(), wait_until="load")
        self.strangers = [url for url in self.asked if url != path.as_uri() and not url.startswith("data:image/png")]

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture(params=[True, False], ids=["with JavaScript", "without"])
def opened(request, browser, report):
    found = Opened(browser, report, viewport={"width": 1280, "height": 900}, java_script_enabled=request.param)
    yield found
    found.page.close()


def test_it_asks_for_nothing_and_complains_of_nothing(opened):
    assert opened.asked and opened.strangers == []
    assert opened.complaints == []


def test_every_section_and_table_is_there(opened):
    assert opened.texts("h2") == SECTIONS
    assert opened.texts("h4") == ["What it is good for", "What leaks", "What it costs"] * 3
    assert {"Runs", "Noise-rate Pearson", "Strongest attack", "Certified", "Peak memory", "Paper (%)"} <= set(
        opened.texts("thead th")
    )
    assert "Use <this> & nothing else." in opened.texts(".lead")


def test_hostile_names_are_shown_as_text(opened):
    assert opened.page.locator("script, b, i").count() == 0
    assert "<b>Third</b>" in opened.texts("h3")
    assert any('<script>alert("x")</script> & $noise$' in name for name in opened.texts("tbody th"))


def test_every_image_is_drawn_and_described(browser, report):
    opened = Opened(browser, report, viewport={"width": 1280, "height": 900})
    images = opened.page.eval_on_selector_all("img", "all => all.map(one => [one.naturalWidth, one.alt.length])")
    opened.page.close()
    assert len(images) == 6
    assert all(width > 1000 and alt > 20 for width, alt in images)


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_but_tables_is_wider_than_the_screen(browser, report, width):
    opened = Opened(browser, report, viewport={"width": width, "height": 900})
    opened.page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    too_wide = opened.page.evaluate(TOO_WIDE)
    scrolls = opened.page.evaluate("document.documentElement.scrollWidth")
    opened.page.close()
    assert too_wide == [] and scrolls <= width


def test_it_can_be_printed(browser, report):
    opened = Opened(browser, report, viewport={"width": 700, "height": 1000})  # a page of A4 between its margins
    opened.page.emulate_media(media="print")
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    hidden = opened.page.locator("details > :not(summary)").evaluate_all(
        "all => all.filter(one => one.checkVisibility && !one.checkVisibility()).length"
    )
    paper = opened.page.pdf(format="A4")
    opened.page.close()
    assert wide <= 700 and hidden == 0
    assert paper.startswith(b"%PDF") and opened.strangers == []
