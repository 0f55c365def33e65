"""Assembly of the page of a sweep: one HTML text that opens without a network."""

import shlex
from collections.abc import Sequence
from typing import Any

from forerun.search.answer.explain.explain import MEANING
from forerun.search.board.rows import TIGHT_MARK
from forerun.search.board.sweeps import SweepFolder
from forerun.search.figures.markup import Safe, joined, scrolled, table, tag
from forerun.search.figures.plane import number, symbol_definitions
from forerun.search.files.documents import cost_model_version, versions
from forerun.search.order.objectives import objective_named
from forerun.search.report.scripted import Part, part, scripted_page
from forerun.search.report.sweep.data import MOST_ROWS, Measure, SweepData, sweep_data
from forerun.search.request.scorer import OnProgress

MOST_ANSWERS = 12
MOST_LISTED = 100
MOST_NAMES = 4
STILL_ROWS = 50
"""Rows shown without the script, and shown at once by the script."""


def sweep_html(sweep: SweepFolder, on_progress: OnProgress | None = None) -> str:
    """Return a sweep as a self-contained page; its policy forbids every request and every other script.

    ``on_progress`` is called with the share of finished work.

    Raises
    ------
    RequestError
        A record is damaged, or nothing was found.
    """
    data = sweep_data(sweep, on_progress)
    curves = (
        "The best row of every number of GPUs. Point at a symbol for its figures; a double click, or Enter, opens it."
    )
    front = (
        "The first row of every search. The line joins those that no other beats in both; both axes are logarithmic."
    )
    parts = [
        part("answer", "Answer", "Answer", _answer(data)),
        part("curves-section", "Over GPUs", "Over numbers of GPUs", _plot("curves", _measure_choice(data)), curves),
        part("front-section", "Cost against time", "Cost against time", _plot("front"), front),
        part("leaderboard", "Searches", "All searches", joined([_pages(), _table(data)])),
        part("nothing", "Nothing found", "Searches that found nothing", _nothing(data)),
        part("inputs", "Inputs", "How this page was made", _inputs(sweep, data)),
    ]
    present: list[Part] = [one for one in parts if one is not None]
    present.insert(1, ("filter-section", "Filter", _form(data)))
    title = f"{data.searches:,} searches: {_named(data.asked['model'])} on {_named(data.asked['cluster'])}"
    return scripted_page(
        title=title,
        header=joined([tag("h1", title), tag("p", _asked(sweep, data), class_="asked")]),
        parts=present,
        data={"data": _plain(sweep, data)},
        script="sweep.js",
        version=versions()["forerun"],
    )


def _plain(sweep: SweepFolder, data: SweepData) -> dict[str, Any]:
    """Return the input of the page's script."""
    asked = {}
    for name, texts in data.asked.items():
        values = list(dict.fromkeys(texts))
        places = {text: place for place, text in enumerate(values)}
        asked[name] = {"values": values, "at": [places[text] for text in texts]}
    return {
        "folder": shlex.quote(str(sweep.folder)),
        "columns": data.columns,
        "measures": [
            {"key": one.key, "title": one.title, "meaning": one.meaning, "better": one.better} for one in data.measures
        ],
        "asked": asked,
        "parts": data.parts,
        "told": data.told,
        "meaning": {name: MEANING.get(name, "") for part in data.parts.values() for name in part["names"]},
        "front": _front(data),
        "tight": TIGHT_MARK,
    }


def _front(data: SweepData) -> dict[str, dict[str, str]]:
    """Return the units of cost and time: per training if its length is known, else per token or sample."""
    known = {measure.key: measure for measure in data.measures}
    unit = known["rate"].meaning.partition("s ")[0]
    if "days" in known:
        chosen = {"time": known["days"], "cost": known.get("usd", known["hours"])}
        return {axis: {"key": one.key, "title": one.meaning} for axis, one in chosen.items()}
    cost = known.get("usd_unit")
    price = ("gpu_hours_unit", f"GPU-hours per million {unit}s") if cost is None else (cost.key, cost.meaning)
    time = {"key": "hours_unit", "title": f"hours per billion {unit}s"}
    return {"time": time, "cost": {"key": price[0], "title": price[1]}}


def _named(texts: Sequence[str]) -> str:
    """Return the distinct texts, the first few by name and the number of the rest.

    >>> _named(["a", "b", "a"])
    'a and b'
    """
    names = list(dict.fromkeys(texts))
    more = len(names) - MOST_NAMES
    shown = [*names[:MOST_NAMES], f"{more:,} more"] if more > 0 else names
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _asked(sweep: SweepFolder, data: SweepData) -> str:
    ended = ", ".join(f"{count:,} {status}" for status, count in data.ended.items())
    left = f", {data.unfinished:,} not finished" if data.unfinished else ""
    shown = len(data.columns["search"])
    rows = f"{shown:,} rows" if shown == data.rows else f"{shown:,} of {data.rows:,} rows, the best of every search"
    return f"{ended}{left}; {rows}; ranked by {objective_named(sweep.objective).title_in('token')}"


def _answer(data: SweepData) -> Safe:
    """Return for every model and workload its fastest and its cheapest row, if these are few."""
    known = {measure.key: measure for measure in data.measures}
    cheap = next(known[key] for key in ("usd", "usd_unit", "rate_gpu") if key in known)
    measures = [known["rate"], cheap]
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, search in enumerate(data.columns["search"]):
        if data.columns["rank"][row] == 1:
            groups.setdefault(_group(data, search), []).append(row)
    lines = [
        tag("tr", tag("th", ", ".join(group), scope="row"), *(_best(data, rows, one) for one in measures))
        for group, rows in list(groups.items())[:MOST_ANSWERS]
    ]
    more = f" The first {MOST_ANSWERS} of {len(groups):,}." if len(groups) > MOST_ANSWERS else ""
    caption = f"The best rows of every model and workload; all figures are predicted.{more}"
    heads = ("model", *(f"{_most(one)} {one.meaning}" for one in measures))
    return scrolled(table(heads, lines, caption=caption), "Answer")


def _most(measure: Measure) -> str:
    return "most" if measure.better == "more" else "fewest" if measure.meaning.startswith("days") else "least"


def _group(data: SweepData, search: int) -> tuple[str, ...]:
    return tuple(data.asked[name][search - 1] for name in ("model", "workload") if name in data.asked)


def _best(data: SweepData, rows: Sequence[int], measure: Measure) -> Safe:
    column = data.columns[measure.key]
    known = [row for row in rows if column[row] is not None]
    if not known:
        return tag("td", "not known")
    best = (max if measure.better == "more" else min)(known, key=lambda row: column[row])
    search = data.columns["search"][best]
    where = [data.asked[name][search - 1] for name in ("cluster", "framework", "limits") if name in data.asked]
    text = f"{number(column[best])} {measure.title}: {data.columns['gpus'][best]:,} GPUs, {', '.join(where)}"
    marks = tag("small", data.columns["marks"][best]) if data.columns["marks"][best] else None
    link = tag("a", tag("code", data.columns["strategy"][best]), href=f"#search-{search}")
    return tag("td", text, tag("br"), link, marks)


def _form(data: SweepData) -> Safe:
    """Return the filters of all figures and the table; hidden until the script runs."""
    fields = []
    for name, texts in data.asked.items():
        values = list(dict.fromkeys(texts))
        if len(values) > 1:
            options = [
                tag("option", "any", value=""),
                *(tag("option", text, value=at) for at, text in enumerate(values)),
            ]
            fields.append(tag("label", tag("span", name), tag("select", *options, data_of=name)))
    find = tag("input", type="search", id="find", placeholder="tp4 recompute=full", autocomplete="off")
    fields.append(tag("label", tag("span", "words of the strategy"), find))
    clean = tag("label", tag("input", type="checkbox", id="clean"), " without a risk of memory", class_="check")
    checks = tag("div", clean, tag("button", "Reset", type="reset"), class_="checks")
    form = tag(
        "form", tag("div", *fields, class_="fields"), checks, id="filter", aria_label="Filter searches", hidden=True,
        class_="scripted",
    )  # fmt: skip
    return tag(
        "section", tag("h2", "Filter", id="filter-title"), form, id="filter-section", aria_labelledby="filter-title"
    )


def _measure_choice(data: SweepData) -> Safe:
    options = [tag("option", one.meaning, value=one.key) for one in data.measures if one.key not in ("gpus", "risk")]
    options.sort(key=lambda option: 'value="rate_gpu"' not in option)
    return tag("div", tag("label", tag("span", "curves of"), tag("select", *options, id="measure")), class_="fields")


def _plot(name: str, choice: Safe | None = None) -> Safe:
    """Return the frame of a figure that the script draws."""
    figure = tag(
        "svg", id=name, class_="figure", role="application", tabindex="0", aria_labelledby=f"{name}-section-title"
    )
    framed = tag("div", figure, tag("div", class_="tip", role="status", hidden=True), class_="plot")
    inner = [tag("p", class_="y-title", id=f"{name}-y"), framed, tag("p", class_="x-title", id=f"{name}-x")]
    return joined(
        [
            tag("svg", symbol_definitions(), width=0, height=0, aria_hidden="true") if choice is not None else None,
            tag("noscript", tag("p", "The figure is drawn by the page's script.", class_="hint")),
            tag("div", choice, class_="scripted", hidden=True) if choice is not None else None,
            tag("ul", class_="legend", id=f"{name}-legend"),
            tag("div", *inner, id=f"{name}-plot"),
            tag("p", "None of the chosen searches has these figures.", id=f"{name}-none", hidden=True),
            tag("p", class_="status", id=f"{name}-say"),
        ]
    )


def _pages() -> Safe:
    every = tag(
        "label", tag("input", type="checkbox", id="all", form="filter"), " all rows, not only the first", class_="check"
    )
    buttons = [tag("button", "Before", type="button", id="before"), tag("button", "Next", type="button", id="after")]
    return tag("div", every, *buttons, tag("span", id="shown", role="status"), class_="pages scripted", hidden=True)


def _table(data: SweepData) -> Safe:
    """Return the table with its first rows, which the script replaces."""
    heads = [("search", "search", "number of the search", False), ("strategy", "strategy", "", False)]
    heads += [(name, name, "", False) for name in data.asked]
    heads += [(one.key, one.title, one.meaning, one.better == "more") for one in data.measures]
    numbers = {"search", *(one.key for one in data.measures)}
    head = [
        tag(
            "th", title, scope="col", class_="n" if key in numbers else None, title=meaning or None, data_key=key,
            data_more=more,
        )
        for key, title, meaning, more in heads
    ]  # fmt: skip
    first = [row for row, rank in enumerate(data.columns["rank"]) if rank == 1][:STILL_ROWS]
    caption = "The first row of every search. GiB is the peak of the fullest GPU. A row opens to its parts."
    board = table(head, [_line(data, row) for row in first], caption=caption, id="board")
    return scrolled(board, "Searches", kind="scroll tall")


def _line(data: SweepData, row: int) -> Safe:
    search = data.columns["search"][row]
    figures = [data.columns[measure.key][row] for measure in data.measures]
    return tag(
        "tr",
        tag("td", search, class_="n"),
        tag("th", tag("code", data.columns["strategy"][row]), scope="row"),
        *(tag("td", texts[search - 1], class_="name") for texts in data.asked.values()),
        *(tag("td", "" if figure is None else number(figure), class_="n") for figure in figures),
    )


def _nothing(data: SweepData) -> Safe | None:
    if not data.nothing:
        return None
    lines = [
        tag(
            "tr", tag("td", search, class_="n"),
            tag("th", ", ".join(texts[search - 1] for texts in data.asked.values()), scope="row"),
            tag("td", f"{status}: {message}"),
        )
        for search, status, message in data.nothing[:MOST_LISTED]
    ]  # fmt: skip
    more = f" The first {MOST_LISTED} of {len(data.nothing):,}." if len(data.nothing) > MOST_LISTED else ""
    endings = table(("search", "asked", "how it ended"), lines, caption=f"Why they have no row.{more}")
    return scrolled(endings, "Searches that found nothing")


def _inputs(sweep: SweepFolder, data: SweepData) -> Safe:
    known = ", ".join(f"{name} {version}" for name, version in versions().items())
    kept = f" Of more than {MOST_ROWS:,} rows the page has the best of every search." if data.rows > MOST_ROWS else ""
    folder = shlex.quote(str(sweep.folder))
    commands = f"forerun report {folder} --search N\nforerun export {folder} --search N --format all --out launch"
    return joined(
        [
            tag("p", f"Made from {sweep.folder}; cost model {cost_model_version()}; {known}.{kept}"),
            tag("p", "The whole page of one search, and launch files of its first row:"),
            tag("pre", commands),
        ]
    )
