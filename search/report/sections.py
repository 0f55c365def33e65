"""The sections of the page below the leaderboard, and the head above it."""

from collections.abc import Mapping, Sequence

from forerun.search.explain import MEANING
from forerun.search.leaderboard import Leaderboard
from forerun.search.objectives import objective_named
from forerun.search.report.bars import MEMORY_SLOTS, TIME_SLOTS, Bar, Stack, plain_bar, stacked_bars
from forerun.search.report.markup import Safe, joined, tag
from forerun.search.report.words import REASONS, command, gpus_text, heading, number, request_lines, short
from forerun.search.rows import Row
from forerun.spaces.units import format_seconds

BEST = 10
"""Rows whose parts are drawn."""
MEMORY_MEANING = {**MEANING, "optimizer": MEANING["optimizer states"]}


def header(board: Leaderboard) -> Safe:
    """Return the title and what was asked."""
    request = board.request
    asked = (
        f"global batch {request['global_batch']:,}, sequence {request['seq_len']:,}, {request['precision']}, "
        f"{request['framework']}; ranked by {objective_named(request['objective']).title}"
    )
    return joined([tag("h1", heading(board)), tag("p", asked, class_="asked")])


def verdict(board: Leaderboard) -> Safe:
    """Return the answer: the winner, its figures and one paragraph about why it wins."""
    best = board.rows[0]
    facts = [
        ("tokens/s per GPU", number(best.tokens_per_s_per_gpu)),
        ("tokens/s in all", number(best.tokens_per_s)),
        ("MFU", f"{best.mfu:.1%}"),
        ("step", format_seconds(best.step_time_s)),
        ("peak memory", f"{best.peak_memory_gib:.1f} of {best.memory_limit_gib:.1f} GiB"),
    ]
    if len(board.request["gpu_counts"]) > 1:
        facts.insert(0, ("GPUs", f"{best.gpus:,}"))
    if best.cost_usd_per_million_tokens is not None:
        facts.append(("cost per million tokens", f"{number(best.cost_usd_per_million_tokens)} USD"))
    if best.train_days is not None:
        facts.append(("whole training", f"{number(best.train_days)} days"))
    if best.train_cost_usd is not None:
        facts.append(("whole training", f"{number(best.train_cost_usd)} USD"))
    tiles = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts]
    warning = tag("p", f"Look at before trying: {'; '.join(best.marks)}.", class_="warn") if best.marks else None
    lead = (
        f"Best of {board.space.feasible:,} strategies that fit, among {board.space.size:,} that can be written down "
        f"for {gpus_text(board)}. {board.why} All figures are predicted."
    )
    return joined([tag("p", tag("code", best.strategy), class_="winner"), tag("dl", *tiles), tag("p", lead), warning])


def step_section(rows: Sequence[Row]) -> Safe:
    """Return where the time of the best rows goes."""
    bars = [_bar(row, format_seconds(row.step_time_s), row.breakdown_s) for row in rows[:BEST]]
    return stacked_bars(Stack(bars=bars, slots=TIME_SLOTS, meaning=MEANING, unit="s", digits=_digits(rows[0])))


def memory_section(rows: Sequence[Row]) -> Safe:
    """Return what fills the fullest device of the best rows, against the limit."""
    limit = rows[0].memory_limit_gib
    bars = [_bar(row, f"{row.peak_memory_gib:.1f} GiB, stage {row.peak_stage}", row.memory_gib) for row in rows[:BEST]]
    stack = Stack(
        bars=bars,
        slots=MEMORY_SLOTS,
        meaning=MEMORY_MEANING,
        unit="GiB",
        digits=2,
        limit=limit,
        limit_text=f"limit {limit:.1f} GiB",
    )
    return stacked_bars(stack)


def scaling_section(board: Leaderboard) -> Safe | None:
    """Return the best throughput by number of GPUs; None where only one number was searched."""
    counts = board.request["gpu_counts"]
    if len(counts) < 2:
        return None
    best: dict[int, Row] = {}
    for row in board.rows:
        if row.gpus not in best or row.tokens_per_s > best[row.gpus].tokens_per_s:
            best[row.gpus] = row
    most = max(row.tokens_per_s for row in best.values())
    top = max(row.tokens_per_s_per_gpu for row in best.values())
    lines = [
        tag(
            "tr",
            tag("th", f"{count:,}", scope="row", class_="n"),
            tag("td", number(row.tokens_per_s), class_="n"),
            tag("td", plain_bar(row.tokens_per_s / most), class_="wide-cell"),
            tag("td", number(row.tokens_per_s_per_gpu), class_="n"),
            tag("td", f"{row.tokens_per_s_per_gpu / top:.1%}", class_="n"),
            tag("td", tag("code", row.strategy), f" (rank {row.rank})"),
        )
        for count, row in sorted(best.items())
    ]
    names = ("GPUs", "tok/s", "", "tok/s/GPU", "of the best per GPU", "strategy")
    table = _table("Best throughput by number of GPUs, among the rows kept", names, lines, numbers=(0, 1, 3, 4))
    absent = [f"{count:,}" for count in counts if count not in best]
    note = None
    if absent:
        note = tag(
            "p",
            f"No row kept has {', '.join(absent)} GPUs: others rank before them. A search with --top 1000 keeps more.",
            class_="hint",
        )
    return joined([_scroll(table, "Throughput by number of GPUs"), note])


def rejected_section(board: Leaderboard) -> Safe:
    """Return how many candidates there were and why most are none."""
    space = board.space
    lead = tag(
        "p",
        f"{space.size:,} candidates: {space.legal:,} keep every law, {space.feasible:,} of them also fit in memory. "
        "A candidate counts for the first law it breaks.",
    )
    if not space.rejected:
        return lead
    most = max(space.rejected.values()) or 1
    lines = [
        tag(
            "tr",
            tag("th", reason, tag("small", REASONS.get(reason)) if reason in REASONS else None, scope="row"),
            tag("td", f"{count:,}", class_="n"),
            tag("td", f"{count / max(space.size, 1):.2%}", class_="n"),
            tag("td", plain_bar(count / most), class_="wide-cell"),
        )
        for reason, count in space.rejected.items()
    ]
    table = _table("Rejected candidates by reason", ("reason", "candidates", "share", ""), lines, numbers=(1, 2))
    return joined([lead, _scroll(table, "Rejected candidates")])


def inputs_section(board: Leaderboard) -> Safe:
    """Return everything the answer depends on: inputs, what was filled in, notes, versions and the command."""
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", text)) for name, text in request_lines(board)]
    table = _scroll(_table("Inputs", ("input", "value"), lines), "Inputs")
    versions = ", ".join(f"{name} {version}" for name, version in board.versions.items())
    walked = f"Searched in {format_seconds(board.elapsed_s)}; {versions}."
    return joined(
        [
            table,
            tag("h3", "Filled in for you"),
            tag("ul", *(tag("li", text) for text in board.defaults)) if board.defaults else tag("p", "Nothing."),
            tag("h3", "Notes"),
            tag("ul", *(tag("li", text) for text in board.notes)) if board.notes else tag("p", "None."),
            tag("h3", "Ask again"),
            tag("pre", tag("code", command(board)), tabindex="0"),
            tag("h3", "Versions"),
            tag("p", walked),
        ]
    )


def _bar(row: Row, value: str, parts: Mapping[str, float]) -> Bar:
    return Bar(label=f"{row.rank}. {short(row)}", detail=row.strategy, value=value, parts=parts)


def _digits(row: Row) -> int:
    return 2 if row.step_time_s >= 10 else 3 if row.step_time_s >= 1 else 5


def _table(caption: str, names: Sequence[str], lines: Sequence[Safe], *, numbers: Sequence[int] = ()) -> Safe:
    head = [
        tag("th", name, scope="col", class_="n" if i in numbers else None) if name else tag("td")
        for i, name in enumerate(names)
    ]
    return tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *lines))


def _scroll(table: Safe, name: str) -> Safe:
    return tag("div", table, class_="scroll", role="region", aria_label=name, tabindex="0")
