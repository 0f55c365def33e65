"""The page in headless Chromium.

Skipped where ``chromedriver`` is not installed.
"""

import base64
import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from forerun_browser import Browser, open_browser

from forerun.search import Leaderboard, Request, search_request
from forerun.search.answer.baseline import read_present, stand_beside
from forerun.search.report import write_report
from forerun.search.request.resolve import resolve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="chromedriver is not installed"),
]


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    request = Request(
        model="llama3-8b",
        cluster="dgx-h100",
        gpus="8..32",
        global_batch=64,
        seq_len=4096,
        top=60,
        objective="cost",
        usd_per_gpu_hour=2.0,
        tokens=15e12,
    )
    present = read_present(["tp2 pp2 dp4 mbs1 zero1 sp recompute=full"], "2.1s")
    return stand_beside(search_request(request), resolve(request), present)


@pytest.fixture(scope="module")
def page(board: Leaderboard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, board)
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(started: Browser, page: Path) -> Browser:
    started.width(1440)
    started.open(page.as_uri())
    return started


def column(browser: Browser, number: int) -> list[str]:
    """Return the texts of one column of the rows that are shown."""
    cell = "const cell = row.cells[arguments[0]]; return (cell.querySelector('code') ?? cell).textContent"
    script = f"return [...document.querySelectorAll('#board tbody tr:not([hidden])')].map(row => {{ {cell} }})"
    return list(browser.run(script, number))


def sort_by(browser: Browser, title: str) -> str:
    """Click a heading and return its ``aria-sort``."""
    script = """
        const head = [...document.querySelectorAll('#board thead th')].find(h => h.textContent === arguments[0]);
        head.querySelector('button').click();
        return head.getAttribute('aria-sort');
    """
    return str(browser.run(script, title))


def test_no_error_and_no_request(browser: Browser, page: Path) -> None:
    for kind in ("performance", "browser"):  # what Chromium's own first page left
        browser.log(kind)
    browser.call(f"{browser.session}/refresh", {})
    requested = []
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            requested.append(message["params"]["request"]["url"])

    assert page.as_uri() in requested
    assert [url for url in requested if url != page.as_uri() and not url.startswith("data:")] == []
    assert browser.log("browser") == []


def test_a_request_would_be_refused(browser: Browser) -> None:
    script = "try { await fetch('http://127.0.0.1:9/'); return 'sent'; } catch (error) { return String(error); }"
    violation = "let found = []; document.addEventListener('securitypolicyviolation', e => found.push(e.blockedURI));"

    told = browser.run(
        f"return (async () => {{ {violation} try {{ {script} }} finally {{ window.found = found; }} }})()"
    )

    assert told != "sent"
    assert browser.run("return window.found") == ["http://127.0.0.1:9/"]
    browser.log("browser")


def test_sorting(browser: Browser, board: Leaderboard) -> None:
    steps = [row.step_time_s for row in board.rows]

    assert sort_by(browser, "step (s)") == "ascending"
    assert [float(text) for text in column(browser, 6)] == pytest.approx(sorted(steps), rel=0.01)
    assert sort_by(browser, "step (s)") == "descending"
    assert [float(text) for text in column(browser, 6)] == pytest.approx(sorted(steps, reverse=True), rel=0.01)
    assert sort_by(browser, "MFU") == "descending"
    assert browser.run("return document.querySelectorAll('[aria-sort]').length") == 1
    assert sort_by(browser, "#") == "ascending"
    assert column(browser, 1) == [row.name for row in board.rows]


def test_sorting_from_the_keyboard(browser: Browser) -> None:
    browser.run("document.querySelectorAll('#board thead button')[1].focus()")
    browser.press("Enter")

    assert browser.run("return document.activeElement.parentElement.getAttribute('aria-sort')") == "ascending"


def test_a_row_opens_to_its_parts_and_its_launch_file(browser: Browser, board: Leaderboard) -> None:
    opened = "return [...document.querySelectorAll('tr.detail')].map(row => row.textContent)"
    click = "document.querySelectorAll('#board button.open')[arguments[0]].click()"
    browser.run(click, 1)
    (shown,) = browser.run(opened)
    row = board.rows[1]

    assert "compute" in shown and "activations" in shown
    assert f"--tensor-model-parallel-size {row.strategy.tp}" in shown
    assert browser.run("return document.querySelector('tr.detail').previousSibling.id") == "r1"

    browser.run(click, 0)
    assert len(browser.run(opened)) == 1
    assert browser.run("return document.querySelectorAll('[aria-expanded=true]').length") == 1
    browser.run(click, 0)
    assert browser.run(opened) == []

    browser.run(click, 2)
    sort_by(browser, "step (s)")
    assert browser.run(opened) == []
    sort_by(browser, "#")


def test_filtering(browser: Browser, board: Leaderboard) -> None:
    script = """
        const [selector, value] = arguments;
        const field = document.querySelector(selector);
        if (field.type === 'checkbox') { field.click(); } else { field.value = value; }
        field.dispatchEvent(new Event('input', { bubbles: true }));
    """
    browser.run(script, "#find", "DP8 zero1")
    wanted = [row.name for row in board.rows if {"dp8", "zero1"} <= set(row.name.split())]
    assert 0 < len(wanted) < len(board.rows)
    assert column(browser, 1) == wanted
    assert browser.run("return document.querySelectorAll('.pt.off').length") == len(board.rows) - len(wanted)
    assert browser.run("return document.getElementById('shown').textContent").startswith(f"{len(wanted)} of 60 rows")

    browser.run(script, "#find", "")
    browser.run(script, "select[data-axis=gpus]", "16")
    assert column(browser, 1) == [row.name for row in board.rows if row.gpus == 16]

    browser.run("document.querySelector('#filter button[type=reset]').click()")
    browser.run("return new Promise(done => setTimeout(done, 50))")
    assert len(column(browser, 1)) == len(board.rows)

    browser.run(script, "#clean", "")
    assert set(column(browser, 1)) == {row.name for row in board.rows if not set(row.marks) - {"within 1% of the best"}}


def test_hover_and_keys_show_a_row(browser: Browser, board: Leaderboard) -> None:
    browser.run("document.getElementById('scatter').scrollIntoView({block: 'center'})")
    box = browser.run(
        "const b = document.querySelector('#points use[data-i=\"0\"]').getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y + b.height / 2]"
    )
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    tip = "const tip = document.getElementById('tip'); return tip.hidden ? null : tip.textContent"
    assert board.rows[0].name in browser.run(tip)

    browser.run("document.getElementById('scatter').focus()")
    for _ in range(2):
        browser.press("ArrowRight")
    told = browser.run(tip)
    assert any(row.name in told for row in board.rows[1:3])
    browser.press("Enter")
    assert browser.run("return document.querySelector('tr.picked code').textContent") in told


def test_points_change_colour_and_symbol(browser: Browser) -> None:
    kinds = (
        "return [...document.querySelectorAll('#points use')].map(p => p.getAttribute('href') + p.className.baseVal)"
    )
    before = browser.run(kinds)
    browser.run("const s = document.getElementById('colour'); s.value = 'dp'; s.dispatchEvent(new Event('change'));")

    assert browser.run(kinds) != before
    assert browser.run("return document.getElementById('groups').textContent").split()[0] == "dp"


def test_another_axis_moves_the_points(browser: Browser, board: Leaderboard) -> None:
    choose = "const s = document.getElementById('view'); s.value = arguments[0]; s.dispatchEvent(new Event('change'));"
    across = "return document.querySelector(`#points use[data-i='${arguments[0]}']`).getBoundingClientRect().x"
    browser.run(choose, "GPUs")
    least, most = (pick(range(len(board.rows)), key=lambda i: board.rows[i].gpus) for pick in (min, max))

    assert browser.run(across, least) < browser.run(across, most)
    assert browser.run("return document.getElementById('x-title').textContent") == "GPUs"
    shown = "return [...document.querySelectorAll('.view')].filter(v => getComputedStyle(v).display !== 'none').length"
    assert browser.run(shown) == 1
    browser.run(choose, "memory")
    assert browser.run("return document.getElementById('y-title').textContent") == "tokens per second and GPU"


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_no_width_scrolls_the_page_sideways(browser: Browser, width: int) -> None:
    browser.width(width)

    assert browser.run("return document.documentElement.scrollWidth") <= width
    boxes = "return [...document.querySelectorAll('.scroll')].every(b => b.getBoundingClientRect().right <= innerWidth)"
    assert browser.run(boxes)


def test_every_column_is_printed(browser: Browser) -> None:
    browser.width(740)  # what portrait paper has between its margins
    browser.send("Emulation.setEmulatedMedia", media="print")

    assert browser.run("return document.getElementById('board').getBoundingClientRect().right") <= 740
    assert browser.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.send("Emulation.setEmulatedMedia", media="")


@pytest.mark.skipif("FORERUN_PICTURES" not in os.environ, reason="pictures are drawn by `make pictures` only")
@pytest.mark.parametrize(("width", "height"), [(390, 1400), (1440, 1500)])
def test_pictures_for_the_documentation(browser: Browser, width: int, height: int) -> None:
    """``FORERUN_PICTURES=docs/pictures`` keeps what a phone and a desk show first.

    A picture waits for the compositor, which a busy machine starves until the driver gives up.
    """
    browser.width(width, height)
    browser.send("Emulation.setScrollbarsHidden", hidden=True)
    picture = base64.b64decode(browser.send("Page.captureScreenshot", format="png")["data"])

    assert struct.unpack(">II", picture[16:24]) == (width, height)
    assert len(picture) > 20_000, "the page is nearly blank"
    (Path(os.environ["FORERUN_PICTURES"]) / f"report-{width}.png").write_bytes(picture)
