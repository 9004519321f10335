"""The report's page: a user's text never becomes HTML; in a real browser it sorts, fits a phone and has two themes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from analysis.grid import Grid
from analysis.page import page
from tests.analysis.synthetic import A100, Planted, case, figure19_document, write
from tests.analysis.test_cli import run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "<script>hit()<b>|*_[x](y)"
H100 = A100 | {"gpu": {"name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80_000_000_000}}
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


def test_text_never_becomes_html_links_or_foreign_pictures() -> None:
    text = "# A <b>\n\n<script>hit()</script>\n\n[x](http://e.example) <http://e.example> &lt; ![x](http://e.example/x.png)"
    whole = page(text, {})
    body = whole.split("<main>")[1].split("</main>")[0]
    assert "<title>A &lt;b&gt;</title>" in whole
    assert "&lt;script&gt;hit()&lt;/script&gt;" in body
    assert "&amp;lt;" in body
    for mark in ("<script", "<a", "<img", "<b>"):
        assert mark not in body


def test_cells_show_their_text_as_it_is_and_break_lines() -> None:
    grid = Grid("T <i>", ("a", "b"), ((HOSTILE, "1*\n0-2"), ("\\|&amp;`", "-")), numbers=("b",))
    body = page(grid.markdown(), {}).split("<main>")[1]
    assert "<strong>T &lt;i&gt;</strong>" in body
    assert "<td>&lt;script&gt;hit()&lt;b&gt;|*_[x](y)</td>" in body
    assert "<td>\\|&amp;amp;`</td>" in body
    assert '<td class="number">1*<br>0-2</td>' in body
    assert "style=" not in body


def test_pictures_and_the_list_of_sections_lie_inside() -> None:
    whole = page("# R\n\n## Copy rates\n\n![The rates](rates.svg)\n\n## How & why", {"rates.svg": b"<svg/>"})
    assert '<img alt="The rates" src="data:image/svg+xml;base64,PHN2Zy8+">' in whole
    assert '<a href="#copy-rates">Copy rates</a>\n<a href="#how-why">How &amp; why</a>' in whole
    assert '<h2 id="how-why">' in whole
    assert "http" not in whole.replace("http-equiv", "")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two machines, with a hostile label, a suspect row and a skipped case."""
    folder = tmp_path_factory.mktemp("report")
    content = figure19_document(Planted(), block_sizes=(1, 16, 256), rounds=5)
    content["benchmarks"][0]["extra_info"]["suspect"] = ["clocks held down"]
    content["skipped"] = [{"case": case(), "reason": f"out of memory {HOSTILE}"}]
    other = figure19_document(
        Planted(recompute_s=0.02), machine=H100, block_sizes=(1, 16, 256), rounds=5, session="s22"
    )
    result = run(
        "report", f"{HOSTILE}={write(folder, content)}", write(folder, other, "b.json"), "-o", folder / "r.html"
    )
    assert result.exit_code == 0
    assert f"written: {folder / 'r.html'}" in result.stdout
    return folder / "r.html"


def test_the_page_holds_the_answer_and_all_that_it_rests_on(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    facts = ("swap wins above a block size of", "REFUTED", "out of memory", "clocks held down", "How it was measured")
    for fact in (*facts, "NVIDIA H100 80GB HBM3", "python -m analysis report"):
        assert fact in text
    assert text.index("swap wins above") < text.index("<h2")
    assert text.count("data:image/svg+xml;base64,") >= 3


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser; it is in the dev group")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: the page is not opened in a browser")
    with driver.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Opens a page; fails the test if a script failed, the policy refused something, or anything was fetched."""
    complaints: list[str] = []
    contexts = []

    def open_page(url: Path, size: dict[str, int] = DESKTOP, scheme: str = "light") -> Any:
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme))
        tab = contexts[-1].new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda sent: None if sent.url.startswith(("file:", "data:")) else complaints.append(sent.url))
        tab.goto(url.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


TABLE = Grid(
    "",
    ("n", "text"),
    (("12.3*\n1-9", "b 10"), ("1,234\n1-2", "b 9"), ("-", "a"), ("0.5\n7-8", ""), ("~45.1%", "16, 32")),
    numbers=("n",),
)
UP = ["0.5", "12.3*", "~45.1%", "1,234", "-"]
DOWN = ["1,234", "~45.1%", "12.3*", "0.5", "-"]
AS_GIVEN = ["12.3*", "1,234", "-", "0.5", "~45.1%"]


@pytest.fixture
def table(opened: Any, tmp_path: Path) -> Any:
    path = tmp_path / "t.html"
    path.write_text(page(f"# T\n\n{TABLE.markdown()}", {}), encoding="utf-8")
    return opened(path)


def column(tab: Any, number: int) -> list[str]:
    """First lines of a column, in the order shown."""
    return [cell.split("\n")[0] for cell in tab.locator(f"tbody td:nth-child({number})").all_inner_texts()]


def directions(tab: Any) -> list[str]:
    return [head.get_attribute("aria-sort") for head in tab.locator("th").all()]


def test_a_click_sorts_numbers_as_numbers_and_texts_as_texts(table: Any) -> None:
    assert directions(table) == ["none", "none"]
    for order, direction in ((UP, "ascending"), (DOWN, "descending"), (AS_GIVEN, "none")):
        table.click("th:nth-child(1) button")
        assert column(table, 1) == order
        assert directions(table) == [direction, "none"]
    table.click("th:nth-child(1) button")
    table.click("th:nth-child(2) button")
    assert column(table, 2) == ["16, 32", "a", "b 9", "b 10", ""]
    assert directions(table) == ["none", "ascending"]


def test_the_keyboard_sorts_too(table: Any) -> None:
    table.keyboard.press("Tab")  # the theme
    table.keyboard.press("Tab")  # the table's box, which scrolls by arrows
    table.keyboard.press("Tab")
    table.keyboard.press("Enter")
    assert (column(table, 1), directions(table)) == (UP, ["ascending", "none"])
    table.keyboard.press("Space")
    assert (column(table, 1), directions(table)) == (DOWN, ["descending", "none"])


def brightness(tab: Any) -> float:
    """Mean of a screenshot's pixels, 0 to 255."""
    return float(np.asarray(Image.open(BytesIO(tab.screenshot())).convert("L")).mean())


def test_both_themes_by_system_and_by_button(opened: Any, report: Path) -> None:
    tab = opened(report)
    light = brightness(tab)
    assert (light > 200, tab.inner_text("#theme")) == (True, "Dark")
    tab.click("#theme")
    assert (brightness(tab) < 130, tab.inner_text("#theme")) == (True, "Light")
    dark = opened(report, scheme="dark")
    assert (brightness(dark) < 130, dark.inner_text("#theme")) == (True, "Light")
    plates = dark.evaluate("[...document.images].map((image) => getComputedStyle(image).backgroundColor)")
    assert set(plates) == {"rgb(255, 255, 255)"}
    dark.click("#theme")
    assert brightness(dark) == pytest.approx(light, abs=1)


def test_a_phone_scrolls_tables_and_pictures_in_their_boxes_not_the_page(opened: Any, report: Path) -> None:
    tab = opened(report, PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    beyond = "(box) => box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX === 'auto'"
    assert tab.locator("div.scroll").first.evaluate(beyond)
    assert all(tab.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth > 0)"))
    assert tab.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16


def test_a_hostile_label_is_shown_and_not_run(opened: Any, report: Path) -> None:
    tab = opened(report)
    assert HOSTILE in tab.inner_text("h1 + ul")
    assert tab.locator("main script, main a").count() == 0
