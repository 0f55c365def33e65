"""Size of a report of 1,000 rows, and how long a browser takes to open, sort, filter and redraw it.

    python benchmarks/report.py [--rows N] [--out FOLDER]

Needs chromedriver and Chromium. Writes YYYY-MM-DD-report.md into benchmarks/results/; takes half a minute.
"""

import argparse
import datetime
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from forerun_browser import Browser, open_browser  # noqa: E402  # lies beside the tests, which use it too

from forerun.search import Request, search_request  # noqa: E402  # behind the path above
from forerun.search.answer.baseline import read_present, stand_beside  # noqa: E402
from forerun.search.report import report_html  # noqa: E402
from forerun.search.request.resolve import resolve  # noqa: E402

ROUNDS = 7
LOADED = """
    const entry = performance.getEntriesByType('navigation')[0];
    return [entry.domInteractive, entry.domContentLoadedEventEnd, entry.loadEventEnd];
"""
# A forced layout at the end counts what the browser would do before the next picture.
TIMED = "const start = performance.now(); {}; document.body.getBoundingClientRect(); return performance.now() - start;"
ACTIONS = {
    "sort by strategy": "document.querySelectorAll('#board thead th button')[1].click()",
    "filter by a word": (
        "const find = document.getElementById('find'); find.value = find.value ? '' : 'tp4';"
        "find.dispatchEvent(new Event('input', {bubbles: true}))"
    ),
    "colour by another axis": (
        "const s = document.getElementById('colour'); s.selectedIndex = 1 - s.selectedIndex;"
        "s.dispatchEvent(new Event('change'))"
    ),
    "throughput against GPUs": (
        "const s = document.getElementById('view'); s.selectedIndex = 2 - s.selectedIndex;"
        "s.dispatchEvent(new Event('change'))"
    ),
}


def main() -> int:
    """Write the page, open it, act on it and record the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    args = parser.parse_args()
    request = Request(
        model="llama3-70b",
        cluster="dgx-h100",
        gpus="64..512",
        global_batch=512,
        seq_len=8192,
        objective="cost",
        top=args.rows,
    )
    present = read_present(["tp8 pp4 dp4 mbs1 zero1 sp"])
    board = stand_beside(search_request(request), resolve(request), present)
    start = time.perf_counter()
    page = report_html(board)
    written_s = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        with open_browser(Path(folder) / "profile") as browser:
            version = browser.send("Browser.getVersion")["product"]
            figures = [("page with its figures written", written_s), *_measured(browser, path)]
    lines = [
        f"# A report of {len(board.rows):,} rows, {datetime.date.today().isoformat()}",
        "",
        "    python benchmarks/report.py",
        "",
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, {version}; medians of "
        f"{ROUNDS}. Asked for: under 6 MB, and interactive in a second.",
        "",
        f"The page has {len(page.encode()) / 1e6:.2f} MB.",
        "",
        "| | ms |",
        "|---|---:|",
        *(f"| {name} | {1e3 * seconds:,.0f} |" for name, seconds in figures),
        "",
    ]
    target = args.out / f"{datetime.date.today().isoformat()}-report.md"
    target.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
    return 0


def _measured(browser: Browser, path: Path) -> list[tuple[str, float]]:
    """Return what opening the page takes from the start of the navigation, and what acting on it takes, in seconds."""
    browser.width(1440)
    opened = []
    for _ in range(ROUNDS):
        browser.call(f"{browser.session}/url", {"url": path.as_uri()})
        opened.append(browser.run(LOADED))
    names = ("markup read", "script done: the page can be used", "loaded")
    figures = [(name, statistics.median(times[place] for times in opened) / 1e3) for place, name in enumerate(names)]
    for name, script in ACTIONS.items():
        times = [float(browser.run(TIMED.format(script))) for _ in range(ROUNDS)]
        figures.append((name, statistics.median(times) / 1e3))
    return figures


if __name__ == "__main__":
    sys.exit(main())
