"""The page of a report: well-formed, self-contained, true to the leaderboard, and safe with any name."""

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search import Leaderboard, Row, search
from forerun.search.answer.evidence import entry_of
from forerun.search.figures.markup import VOID, Safe
from forerun.search.figures.still_page import page_style
from forerun.search.report import report_html
from forerun.search.report.accuracy import accuracy_section
from forerun.search.report.details import details_data, resolved_request
from forerun.search.report.page import MOST_ROWS
from forerun.search.report.scatter import coordinates, pareto_front, scatter, views_of
from forerun.search.report.table import MOST_VARIANTS
from forerun.search.report.timeline import stages_section
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import visible

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"' & ${title} \u2028"
SIX_MB = 6_000_000


class Page(HTMLParser):
    """Elements of a page with their texts; refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.in_board = False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} stands twice"
        self.elements.append((tag, dict(attrs)))
        self.in_board = self.in_board or dict(attrs).get("id") == "board"
        if self.in_board and tag == "tr":
            self.rows.append([])
        if self.in_board and tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "table":
            self.in_board = False

    def handle_data(self, data: str) -> None:
        if not self.open:
            return
        self.texts.setdefault(self.open[-1], []).append(data)
        if self.in_board and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, found in self.elements if (value := found.get(name, "absent")) != "absent"]


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return search(
        "llama3-8b",
        cluster="dgx-h100",
        gpus="8..32",
        global_batch=64,
        seq_len=4096,
        usd_per_gpu_hour=2.0,
        tokens=1e12,
        top=40,
        objective="cost",
    )


@pytest.fixture(scope="module")
def page(board: Leaderboard) -> Page:
    return Page(report_html(board))


def test_ids_are_unique_and_references_lead_somewhere(page: Page) -> None:
    ids = page.attributes("id")
    inside = [target[1:] for target in page.attributes("href") if target.startswith("#")]

    assert len(set(ids)) == len(ids)
    assert {*inside, *page.attributes("aria-labelledby")} <= set(ids)
    assert {"leaderboard", "trade-off", "step", "memory", "timeline", "scaling", "rejected", "inputs"} <= set(inside)


def test_nothing_is_loaded(board: Leaderboard, page: Page) -> None:
    text = report_html(board)
    assets = page_style() + _asset("page.js")

    assert page.attributes("src") == []
    assert [target for target in page.attributes("href") if not target.startswith("#")] == ["data:,"]
    assert re.findall(r"https?://[^\"' ]*", text) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|import\(|WebSocket|sendBeacon|innerHTML|eval\(", assets)


def test_the_policy_allows_the_one_script_and_no_request(board: Leaderboard) -> None:
    text = report_html(board)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert f"default-src 'none'; script-src 'sha256-{digest}';" in text


def test_the_table_has_every_row(board: Leaderboard, page: Page) -> None:
    head, *body = page.rows

    assert head == ["#", "strategy", "GPUs", "tok/s", "tok/s/GPU", "MFU", "step (s)", "GiB of 79", *head[8:]]
    assert head[8:] == ["USD/Mtok", "days", "USD", "MWh", "notes"]
    assert all(line[1].startswith(row.name) for line, row in zip(body, board.rows, strict=True))
    assert [int(line[0]) for line in body] == [row.rank for row in board.rows]
    assert [int(line[2]) for line in body] == [row.gpus for row in board.rows]
    steps = [row.step_time_s for row in board.rows]
    assert [float(line[6]) for line in body] == pytest.approx(steps, rel=0.005, abs=0.005)
    assert [float(line[7]) for line in body] == pytest.approx([row.peak_memory_gib for row in board.rows], abs=0.051)
    for line, row in zip(body, board.rows, strict=True):
        assert all(mark in line[-1] for mark in row.marks)


def test_the_headings_are_plain_without_script_and_sorted_by_rank(page: Page) -> None:
    sorted_by = [found for tag, found in page.elements if tag == "th" and "aria-sort" in found]

    assert [found["aria-sort"] for found in sorted_by] == ["ascending"]
    assert sorted_by[0]["title"] == "rank"


def test_points_are_the_rows(board: Leaderboard, page: Page) -> None:
    points = [found for tag, found in page.elements if tag == "use" and "data-i" in found]

    assert sorted(int(found["data-i"] or "") for found in points) == list(range(len(board.rows)))
    best = next(found for found in points if found["data-i"] == "0")
    heights = [float((found["y"] or "").rstrip("%")) for found in points]
    most = max(range(len(board.rows)), key=lambda place: board.rows[place].throughput_per_gpu)
    assert (most == 0) == (float((best["y"] or "").rstrip("%")) == min(heights))
    assert all(0 <= height <= 100 for height in heights)


def test_bars_are_in_proportion(board: Leaderboard) -> None:
    text = report_html(board)
    steps = text[text.index('<section id="step"') : text.index('<section id="memory"')]
    tracks = re.findall(r'<div class="track".*?</div>', steps)
    widths = [sum(float(width) for width in re.findall(r"width:([\d.]+)%", track)) for track in tracks]
    times = [row.step_time_s for row in board.rows[:10]]

    assert widths == pytest.approx([100 * time / max(times) for time in times], abs=0.5)


def test_inputs_defaults_versions_and_reasons_are_told(board: Leaderboard, page: Page) -> None:
    told = " ".join(text for texts in page.texts.values() for text in texts)

    for text in (*board.defaults, *board.notes, *board.space.rejected, *board.versions.values(), board.why):
        assert text in told
    for count in (board.space.size, board.space.legal, board.space.feasible, *board.space.rejected.values()):
        assert f"{count:,}" in told


def test_no_name_becomes_markup(board: Leaderboard) -> None:
    rows = tuple(dataclasses.replace(row, marks=(HOSTILE,)) for row in board.rows)
    names = {name: HOSTILE for name in ("model", "model_name", "cluster", "cluster_name", "framework", "precision")}
    hostile = dataclasses.replace(
        board,
        request={**board.request, **names, HOSTILE: HOSTILE, "overrides": {HOSTILE: [HOSTILE]}},
        space=dataclasses.replace(board.space, rejected={HOSTILE: 1}),
        rows=rows,
        why=HOSTILE,
        defaults=(HOSTILE,),
        remarks=(HOSTILE,),
        versions={"forerun": HOSTILE},
        workers=HOSTILE,
    )

    page = Page(report_html(hostile))

    assert [tag for tag, _ in page.elements].count("script") == 4
    assert "img" not in {tag for tag, _ in page.elements}
    assert not [name for _, found in page.elements for name in found if name.startswith("on")]
    assert sum(visible(HOSTILE) in text for text in page.texts["li"]) >= 2
    assert any(visible(HOSTILE) in text for text in page.texts["h1"])
    assert any(text.startswith("No timeline: ") for text in page.texts["p"])


@pytest.mark.slow
def test_long_leaderboards_are_cut_and_stay_small(board: Leaderboard) -> None:
    many = tuple(dataclasses.replace(board.rows[i % 40], rank=i + 1) for i in range(MOST_ROWS + 5))
    thousand = report_html(dataclasses.replace(board, rows=many[:1000]))
    longest = report_html(dataclasses.replace(board, rows=many))

    assert len(thousand.encode()) < SIX_MB / 4
    assert len(Page(longest).rows) == 1 + MOST_ROWS
    assert f"of the {len(many):,} kept" in longest


def test_few_variants_open_below_a_row(board: Leaderboard) -> None:
    row = max(board.rows, key=lambda one: len(one.variants))
    assert len(row.variants) > MOST_VARIANTS

    page = report_html(dataclasses.replace(board, rows=(row,)))

    assert f"+{len(row.variants)} variants within 1%" in page
    assert f"{len(row.variants) - MOST_VARIANTS} more (--all-variants)" in page
    assert str(row.variants[MOST_VARIANTS].strategy) not in page


def test_one_row_and_no_row(board: Leaderboard) -> None:
    one = Page(report_html(dataclasses.replace(board, rows=board.rows[:1])))

    assert len(one.rows) == 2
    assert "select" not in {tag for tag, _ in one.elements}
    with pytest.raises(RequestError, match="at least one row"):
        report_html(dataclasses.replace(board, rows=()))


@settings(max_examples=tries(60))
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=25))
def test_the_front_has_what_no_other_beats(board: Leaderboard, figures: list[tuple[int, int]]) -> None:
    rows: list[Row] = [
        dataclasses.replace(board.rows[0], peak_memory_gib=float(memory), throughput_per_gpu=float(speed))
        for memory, speed in figures
    ]
    front = {figures[place] for place in pareto_front(rows)}

    best = {
        (memory, speed)
        for memory, speed in figures
        if not any(m <= memory and s >= speed and (m, s) != (memory, speed) for m, s in figures)
    }
    assert front == best


def test_axes_travel_as_data(board: Leaderboard) -> None:
    text = report_html(board)
    found = re.search(r'<script type="application/json" id="axes">(.*?)</script>', text)
    assert found is not None
    axes = json.loads(found[1])

    assert set(axes["gpus"]) == {row.gpus for row in board.rows}
    assert all(len(values) == len(board.rows) and len(set(values)) > 1 for values in axes.values())
    for axis in ("tp", "pp", "dp"):
        for value, row in zip(axes.get(axis, ()), board.rows, strict=False):
            assert f"{axis}{value}" in row.name.split()


def _asset(name: str) -> str:
    return resources.files("forerun.search.report").joinpath("assets", name).read_text(encoding="utf-8")


def test_states_of_the_optimizer_are_not_its_update(board: Leaderboard) -> None:
    details = details_data(board.rows, ())

    step, memory = (dict(details[name])["optimizer"] for name in ("step", "memory"))
    assert "update" in step
    assert "update" not in memory and "moments" in memory


def test_every_view_has_a_grid_and_a_front_of_its_own(board: Leaderboard) -> None:
    rows = board.rows
    views = views_of(rows, several=True)

    assert [view.name for view in views] == ["memory", "cost", "GPUs"]
    for view in views:
        front = pareto_front(rows, view)
        for place in front:
            beaten = [
                other
                for other in rows
                if view.across(other) <= view.across(rows[place]) and view.up(other) > view.up(rows[place])
            ]
            assert not beaten
        assert all(0 <= x <= 100 and 0 <= y <= 100 for x, y in coordinates(rows, view))
    page = report_html(board)
    assert page.count('data-view="') == len(views) and page.count("view away") == len(views) - 1


def test_a_run_far_off_stays_on_the_border(board: Leaderboard) -> None:
    far = dataclasses.replace(board.rows[0], throughput_per_gpu=1.0, throughput=8.0, peak_memory_gib=1e4)
    view = views_of(board.rows, several=False)[0]

    assert coordinates(board.rows, view, far) == coordinates(board.rows, view)
    drawn = scatter(board.rows, {}, [view], far)
    assert "your run, off the scale" in drawn and 'x="100.00%"' in drawn
    near = dataclasses.replace(board.rows[-1], throughput_per_gpu=0.99 * board.rows[-1].throughput_per_gpu)
    assert ">your run<" in scatter(board.rows, {}, [view], near)


def stages_of(board: Leaderboard) -> Safe | None:
    return stages_section(board, resolved_request(board))


def test_stages_of_the_winner_add_up(board: Leaderboard) -> None:
    piped = next(row for row in board.rows if row.strategy.pp in (2, 4))
    section = stages_of(dataclasses.replace(board, rows=(piped,)))

    assert section is not None and section.count('class="track"') == piped.strategy.pp
    assert f"{piped.peak_memory_gib:.1f} GiB" in section
    flat = next(row for row in board.rows if row.strategy.pp == 1)
    assert stages_of(dataclasses.replace(board, rows=(flat,))) is None
    gone = {**board.request, "model": "missing.json"}
    assert "No stages" in (stages_of(dataclasses.replace(board, rows=(piped,), request=gone)) or "")


def test_accuracy_names_what_was_measured_and_what_was_not(board: Leaderboard) -> None:
    measured = entry_of("h100-sxm", board.request["framework"])
    assert measured is not None and measured["rows"] > 0
    section = accuracy_section(board)
    assert f"{measured['median_pct']:.1f}%" in section and "No measured runs" not in section

    other = {**board.request, "cluster": "trn2", "framework": "generic"}
    assert entry_of(None, "generic") is None
    assert "No measured runs of" in accuracy_section(dataclasses.replace(board, request=other))
    assert ">all<" not in accuracy_section(board) and "any device and framework" in accuracy_section(board)
