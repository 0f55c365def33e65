"""``forerun sweep``: many searches as one job."""

import argparse
import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TextIO

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forerun.search.board.sweeps import STATUSES
from forerun.search.cli.arguments import workers_of
from forerun.search.cli.console import open_console, open_progress, say
from forerun.search.cli.tables import table_of
from forerun.search.files.documents import dump_json
from forerun.search.files.journal import Record
from forerun.search.order.objectives import rate_of
from forerun.search.request.interrupts import EndedEarly
from forerun.search.sweep import read_plan, run_sweep
from forerun.search.sweep.plan import SweepPlan, SweepSearch
from forerun.search.sweep.run import FINISHED, SweepResult, Watch
from forerun.spaces.units import format_seconds


def run(args: argparse.Namespace) -> int:
    """Run the missing searches and print the leaderboard across all searches."""
    workers, plan = workers_of(args), read_plan(args.plan, calibration=args.calibration, profile=args.profile)
    stop: EndedEarly | None = None
    with SweepView(sys.stderr) as view:
        try:
            result = run_sweep(plan, args.out, resume=args.resume, workers=workers, watch=view)
        except EndedEarly as interrupted:
            stop, result = interrupted, interrupted.found
    if stop is not None and not result.document["searches"]:
        print(f"forerun: {result.remarks[-1]}", file=sys.stderr)
        raise stop
    if args.json:
        print(dump_json(result.document))
    else:
        print_sweep(result, show=args.show)
    for search in result.document["searches"]:
        if search["status"] == "failed":
            print(f"forerun: search {search['search']} failed: {search['message']}", file=sys.stderr)
    if stop is not None:
        raise stop
    print(f"forerun: wrote {args.out}", file=sys.stderr)
    return exit_code(result.counts)


def exit_code(counts: dict[str, int]) -> int:
    """Return 1 if a search failed, else 0 if one has rows, else 3, or 2 if all were impossible."""
    if counts["failed"]:
        return 1
    if counts["done"]:
        return 0
    return 3 if counts["infeasible"] else 2


MOST_LINES = 24


class SweepView(Watch):
    """Progress on ``stream``: a live table on a terminal, one line per search elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live: Live | None = None
        self._groups: dict[tuple[str, str], dict[str, Any]] = {}
        self._count = self._done = self._earlier = 0
        self._start_s = time.monotonic()
        self._under_way: dict[int, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def opened(self, plan: SweepPlan, records: "dict[str, Record]", workers: str, remarks: tuple[str, ...]) -> None:
        """Show the total and the finished searches."""
        self._count = len(plan.pieces)
        for piece in plan.pieces:
            self._group(piece)["searches"] += 1
            record = records.get(piece.key)
            if record is not None and record["status"] in FINISHED:
                self._add(piece, record)
        self._earlier = self._done
        earlier = f", {self._done} finished in an earlier run" if self._done else ""
        for line in (f"{self._count} searches{earlier}; {workers}", *remarks):
            print(f"forerun: {line}", file=self._stream)
        if self._stream.isatty():
            self._live = Live(
                get_renderable=self._table, console=open_progress(self._stream), refresh_per_second=2, transient=True
            )
            self._live.start()

    def ended(self, piece: SweepSearch, record: "Record") -> None:
        """Show a finished search."""
        self._under_way.pop(piece.number, None)
        self._add(piece, record)
        if self._live is not None:
            self._live.refresh()
        else:
            best = record.get("rows") or [{}]
            outcome = best[0].get("strategy") or record.get("message", "").split("\n")[0]
            what = f"{piece.request.model} on {piece.request.cluster}, search {piece.number + 1}"
            print(f"forerun: [{self._done}/{self._count}] {what}: {record['status']}: {outcome}", file=self._stream)

    def advanced(self, piece: SweepSearch, share: float) -> None:
        """Show the progress of a long search; without a terminal a line per tenth."""
        before = self._under_way.get(piece.number, 0.0)
        self._under_way[piece.number] = share
        if self._live is not None:
            self._live.refresh()
        elif int(10 * share) > int(10 * before) and share < 1.0:
            print(f"forerun: search {piece.number + 1} is {share:.0%} done", file=self._stream)

    def _group(self, piece: SweepSearch) -> dict[str, Any]:
        key = (piece.request.model, piece.request.cluster)
        return self._groups.setdefault(key, {"searches": 0, "best": None, **dict.fromkeys(STATUSES, 0)})

    def _add(self, piece: SweepSearch, record: "Record") -> None:
        group = self._group(piece)
        self._done += 1
        group[record["status"]] += 1
        best = max((rate_of(row) / row["gpus"] for row in record.get("rows", ())), default=None)
        group["best"] = max(filter(None, (group["best"], best)), default=None)

    def _title(self) -> str:
        """Return the number of finished searches, the elapsed time, and the estimated remaining time."""
        under_way = dict(self._under_way)  # another thread refreshes
        shares = ", ".join(f"search {number + 1} {share:.0%}" for number, share in sorted(under_way.items()))
        gone_s, done = time.monotonic() - self._start_s, self._done + sum(under_way.values())
        left = ""
        if done > self._earlier:
            left = f", {timedelta(seconds=round(gone_s * (self._count - done) / (done - self._earlier)))} left"
        progress = f"{self._done} of {self._count}" + (f" ({shares})" if shares else "")
        return f"{progress}, {timedelta(seconds=int(gone_s))} elapsed{left}"

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title=self._title())
        for name in ("model", "cluster"):
            table.add_column(name)
        for name in ("searches", *STATUSES, "tok/s/GPU"):
            table.add_column(name, justify="right")
        for (model, cluster), group in list(self._groups.items())[:MOST_LINES]:
            numbers = [str(group[name] or "") for name in STATUSES]
            best = "" if group["best"] is None else f"{group['best']:,.0f}"
            table.add_row(model, cluster, str(group["searches"]), *numbers, best)
        if len(self._groups) > MOST_LINES:
            table.add_row(f"and {len(self._groups) - MOST_LINES} more")
        return table


def print_sweep(result: SweepResult, *, show: int) -> None:
    """Print the best row of every search (all rows of a front or a single search), outcomes and errors."""
    console, document = open_console(), result.document
    rows = document["leaderboard"]
    heading = f"{len(rows)} rows of {len(document['searches'])} searches"
    if len(document["searches"]) > 1 and "," not in document["sweep"]["objective"]:
        first: dict[int, dict[str, Any]] = {}
        for row in rows:
            first.setdefault(row["search"], row)
        rows, heading = list(first.values()), f"{heading}; the best of each"
    heading += f", {show} of {len(rows)}" if len(rows) > show else ""
    say(console, Text(heading, style="bold"), _board(rows[:show]))
    counts = ", ".join(f"{number} {status}" for status, number in result.counts.items() if number)
    lines = [f"searches: {counts}; {result.searched} in this run ({result.workers}), {result.skipped} in earlier ones"]
    for search in document["searches"]:
        if search["status"] != "done":
            request = search["request"]
            first = search.get("message", "").split("\n")[0]
            lines.append(
                f"search {search['search']} ({request['model']} on {request['cluster']}) {search['status']}: {first}"
            )
    lines += [f"note: {remark}" for remark in result.remarks]
    say(console, *(Text(line, style="dim") for line in lines))


def _board(rows: list[dict[str, Any]]) -> Table:
    unit = "smp" if all("samples_per_s" in row for row in rows) else "tok"
    table = table_of((">#", "search", ">GPUs", f">{unit}/s", f">{unit}/s/GPU", ">MFU", ">step"), map(_line, rows))
    table.columns[1].min_width = 20
    return table


def _line(row: dict[str, Any]) -> tuple[str | Text, ...]:
    asked = f"{row['model']} on {row['cluster']}, {row['framework']}, B{row['global_batch']}"
    asked += f" S{row['seq_len']}" if row["seq_len"] else ""
    asked += f" {row['precision']}" if row["precision"] else ""
    return (
        str(row["place"]),
        Text(f"{asked}\n").append(row["strategy"], style="bold"),
        str(row["gpus"]),
        f"{rate_of(row):,.0f}",
        f"{rate_of(row) / row['gpus']:,.0f}",
        f"{row['mfu']:.1%}",
        format_seconds(row["step_time_s"]),
    )
