"""Published jobs in the words of their publications: do they fit, how fast are they predicted, and where do they rank.

    python benchmarks/published_jobs.py [--only NAME] [--without-rank]

Each line of ``published_jobs.csv`` is a job: model, cluster, software with its switches, and the layout as far as it
was published. Axes that it leaves open are searched, and the best candidate that fits counts. Its place is the share of
all feasible candidates of the whole request (any layout, same software) that are predicted faster. Prints a table in
Markdown; asked: all fit, 10 % (dense) and 15 % (mixtures) from the published figure, among the first 5 %.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.search.answer.searches import search_request
from forerun.search.board.rows import Row
from forerun.search.explore.flat.exhaustive import CHUNK, chunks_of, slices
from forerun.search.explore.flat.flat_search import problem_of
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.frameworks import load_framework
from forerun.spaces.frameworks.switches import parse_switches
from forerun.spaces.strategies import StrategySpace, StrategyTable
from forerun.spaces.strategies.software import can_turn_on, names_of

JOBS = Path(__file__).with_suffix(".csv")
ASKED = {"dense": 0.10, "moe": 0.15}


def main() -> None:
    """Print one line per job, then how many are within what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="jobs whose name has this text")
    parser.add_argument("--without-rank", action="store_true", help="do not count faster candidates (minutes)")
    args = parser.parse_args()
    with JOBS.open(encoding="utf-8") as file:
        jobs = [job for job in csv.DictReader(file) if args.only in job["job"]]
    print("| job | strategy | GiB of limit | tokens/s/GPU | published | error % | faster, % of feasible |")
    print("|---|---|---:|---:|---:|---:|---:|")
    near = stated = 0
    for job in jobs:
        error = report(job, ranked=not args.without_rank)
        stated += bool(job["tokens_per_s_per_gpu"])
        near += error is not None and abs(error) <= ASKED[job["kind"]]
    print(f"\nwithin what is asked: {near} of {stated}")


def report(job: dict[str, str], *, ranked: bool) -> float | None:
    """Print the line of one job; return the relative error of its throughput, None where it does not fit or no figure
    was published."""
    request = request_of(job)
    try:
        row = search_request(request).rows[0]
    except NothingFeasible as refused:
        print(
            f"| {job['job']} | does not fit: {str(refused).splitlines()[0]} | | | {job['tokens_per_s_per_gpu']} | | |"
        )
        return None
    published = float(job["tokens_per_s_per_gpu"] or 0)
    error = row.throughput_per_gpu / published - 1 if published else None
    place = f"{100 * faster_share(request, row):.1f}" if ranked else ""
    cells = (
        job["job"],
        row.name,
        f"{row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f}",
        f"{row.throughput_per_gpu:,.0f}",
        f"{published:,.0f}" if published else "",
        "" if error is None else f"{100 * error:+.1f}",
        place,
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    return error


def request_of(job: dict[str, str]) -> Request:
    """Return the request of a job, its layout included."""
    layout = {axis: [value] for axis, value in (word.split("=") for word in job["layout"].split())}
    stated = parse_switches([job["switches"]]) if job["switches"] else {}
    # Those that a search would turn on are set to what the job had.
    profile = load_framework(job["framework"])
    free = {words.partition("=")[0] for words in names_of(can_turn_on(profile))}
    off = {name: setting for name, setting in profile.switches if name in free}
    return Request(
        model=job["model"],
        cluster=job["cluster"],
        gpus=job["gpus"],
        global_batch=int(job["global_batch"]),
        seq_len=int(job["seq_len"]),
        precision=job["precision"],
        framework=job["framework"],
        switches=off | stated,
        overrides=layout,
        objective="throughput",
        top=1,
    )


def faster_share(request: Request, row: Row) -> float:
    """Return the share of the feasible candidates of a request without its layout that take less time than a row."""
    space = problem_of(resolve(Request.from_json({**request.to_json(), "overrides": {}}))).space
    faster = feasible = 0
    for table in tables_of(space):
        scores = score(space.context, table)
        feasible += int(scores.fits.sum())
        faster += int((scores.fits & (scores.step_time_s < row.step_time_s * (1 - 1e-9))).sum())
    return faster / max(feasible, 1)


def tables_of(space: StrategySpace) -> Iterator[StrategyTable]:
    """Yield the legal candidates of a whole space."""
    waiting: list[StrategyTable] = []
    for part in slices(space, 0, space.size):
        waiting.append(part.table)
        if sum(map(len, waiting)) >= CHUNK:
            yield from chunks_of(waiting, CHUNK)
            waiting = []
    yield from chunks_of(waiting, CHUNK)


if __name__ == "__main__":
    main()
