"""The page of a sweep in headless Chromium: filters, figures, rows that open, on a phone as well.

Skipped where ``chromedriver`` is not installed.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from forerun_browser import Browser, open_browser
from sweep_cases import SERIAL

from forerun.search.board.sweeps import read_sweep
from forerun.search.report.sweep import sweep_html
from forerun.search.sweep import run_sweep
from forerun.search.sweep.plan import plan_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromedriver") is None, reason="chromedriver is not installed"),
]
CHOOSE = """
    const select = document.querySelector(`select[data-of=${arguments[0]}]`);
    select.value = [...select.options].find((option) => option.text === arguments[1]).value;
    select.dispatchEvent(new Event("input", { bubbles: true }));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    plan = plan_of(
        models=["llama3-8b", "qwen3-8b"],
        clusters=["dgx-h100", "dgx-a100-80"],
        workloads=[{"global_batch": 64, "seq_len": 2048, "tokens": 1e11}],
        budgets=[{"gpus": str(gpus), "usd_per_gpu_hour": 2.0} for gpus in (8, 16)],
        overrides={"mbs": [1], "vpp": [1], "cp": [1]},
        top=3,
    )
    run_sweep(plan, folder / "run", workers=SERIAL)
    (folder / "page.html").write_text(sweep_html(read_sweep(folder / "run")), encoding="utf-8")
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def opened(browser: Browser, page: Path, *, width: int = 1440, anchor: str = "") -> Browser:
    browser.width(width)
    browser.open("about:blank")
    browser.open(page.as_uri() + anchor)
    return browser


def test_it_runs_without_an_error_and_loads_nothing(browser: Browser, page: Path) -> None:
    opened(browser, page)

    assert browser.run("return document.getElementById('shown').textContent") == "1 to 8 of 8 rows"
    assert [line for line in browser.log("browser") if line["level"] == "SEVERE"] == []


def test_filters_reach_figures_and_table(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.run(CHOOSE, "model", "qwen3-8b")
    models = "return [...document.querySelectorAll('#board tbody tr')].map((row) => row.cells[2].textContent)"

    assert browser.run(models) == ["qwen3-8b"] * 4
    legend = browser.run(
        "return [...document.querySelectorAll('#curves-legend li')].map((one) => one.textContent.trim())"
    )
    assert legend == ["dgx-h100", "dgx-a100-80"]
    assert browser.run("return document.querySelectorAll('#curves use').length") == 4
    assert browser.run("return document.querySelectorAll('#front use').length") == 4


def test_all_rows_are_sorted_by_a_heading(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.run("document.getElementById('all').click()")
    browser.run(
        "[...document.querySelectorAll('#board th button')].find((one) => one.textContent === 'step (s)').click()"
    )
    steps = browser.run("""
        const at = [...document.querySelectorAll("#board thead th")].findIndex((one) => one.textContent === "step (s)");
        return [...document.querySelectorAll("#board tbody tr")].map((row) => row.cells[at].textContent);
    """)

    assert browser.run("return document.getElementById('shown').textContent") == "1 to 24 of 24 rows"
    assert [float(step) for step in steps] == sorted(float(step) for step in steps)


@pytest.mark.parametrize("width", [360, 1440])
def test_a_link_opens_its_search_within_the_window(browser: Browser, page: Path, width: int) -> None:
    opened(browser, page, width=width, anchor="#search-7")
    detail = browser.run("return document.querySelector('#board tr.detail > td > div').innerText")

    assert "Memory of the fullest GPU" in detail
    assert "--search 7 --rank 1" in detail
    assert browser.run("return document.querySelector('#board tr.picked button').textContent") == "7"
    assert browser.run("return document.documentElement.scrollWidth") <= width
    box = "const box = document.querySelector('#board tr.detail > td > div').getBoundingClientRect(); return box.right"
    assert browser.run(box) <= width


def test_a_point_of_a_figure_is_named(browser: Browser, page: Path) -> None:
    opened(browser, page)
    browser.run("document.getElementById('front').focus()")
    browser.press("ArrowRight")
    tip = browser.run("return document.querySelector('#front-plot .tip').innerText")

    assert "llama3-8b" in tip and "tok/s/GPU" in tip
    browser.press("Enter")
    assert browser.run("return document.querySelectorAll('#board tr.detail').length") == 1
