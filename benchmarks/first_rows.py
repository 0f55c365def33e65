"""The first ten rows of many jobs, to be read by an engineer: would they be started tonight?

    python benchmarks/first_rows.py [read|checked|later|latest|fresh|edges] [--only TEXT] [--notes]

Prints for every job of ``first_rows.yaml`` its ten ideas with throughput over that of the first, share of the device's
memory, risk of running out and marks; then the notes about other rows. Ends with counts.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from forerun.search import Leaderboard, Request, search_request
from forerun.search.answer.diagnosis.diagnosis import NothingFeasible

JOBS = Path(__file__).with_name("first_rows.yaml")
STRATEGY_NOTES = ("safest:", "global batch")
FIELDS = ("model", "cluster", "gpus", "global_batch", "seq_len", "framework")


def main() -> None:
    """Print the rows of all jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "part", nargs="?", default="read", choices=("read", "checked", "later", "latest", "fresh", "edges")
    )
    parser.add_argument("--only", default="", help="jobs whose line has this text")
    parser.add_argument("--notes", action="store_true", help="all notes, not only those about rows")
    args = parser.parse_args()
    rows = risky = lacking = 0
    jobs = [job for job in yaml.safe_load(JOBS.read_text(encoding="utf-8"))[args.part] if args.only in str(job)]
    for job in jobs:
        board = _board(job)
        if board is None:
            continue
        rows += len(board.rows)
        risky += any(row.risk_text for row in board.rows[:1])
        lacking += sum(row.lacks_launch_file for row in board.rows)
        for line in _lines(job, board, args.notes):
            print(line)
        sys.stdout.flush()
    print(f"{len(jobs)} jobs, {rows} rows; {risky} first rows are risky; {lacking} rows lack a launch file")


def request_of(job: Sequence[Any]) -> Request:
    """Return the request of a line of the file."""
    flags = job[-1] if isinstance(job[-1], dict) else {}
    fields = dict(zip(FIELDS, [part for part in job if not isinstance(part, dict)], strict=False))
    return Request(**fields | {"gpus": str(fields["gpus"])} | flags)


def _board(job: Sequence[Any]) -> Leaderboard | None:
    """Return the leaderboard of a job; None, and a line, where nothing fits."""
    try:
        return search_request(request_of(job))
    except NothingFeasible as error:
        print(f"## {_title(job)}\nnothing fits: {error}\n")
        return None


def _title(job: Sequence[Any]) -> str:
    model, cluster, gpus, batch, seq_len = job[:5]
    further = " ".join(str(part) for part in job[5:])
    return f"{model} on {gpus} of {cluster}, global batch {batch:,}, sequence {seq_len:,} {further}".rstrip()


def _lines(job: Sequence[Any], board: Leaderboard, notes: bool) -> Iterator[str]:
    first = board.rows[0]
    yield f"## {_title(job)} ({board.space.feasible:,} feasible, {board.elapsed_s:.1f} s)"
    for row in board.rows:
        pace = row.throughput_per_gpu / first.throughput_per_gpu - 1
        risk = f" OOM {row.oom_risk:.0%}" if row.risk_text else ""
        others = f" (+{len(row.variants)})" if row.variants else ""
        marks = "".join(f" [{mark}]" for mark in row.marks if mark not in ("tight memory",))
        yield (
            f"{row.rank:2} {row.name}{others}  {pace:+.1%} MFU {row.mfu:.0%} "
            f"{row.peak_memory_gib / row.memory_limit_gib:.0%} of memory{risk}{marks}"
        )
    for note in board.advice:
        if notes or note.startswith(STRATEGY_NOTES) or "predicted throughput" in note:
            yield f"   {note}"
    yield ""


if __name__ == "__main__":
    main()
