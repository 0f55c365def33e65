"""What shares of stages on the host gain where memory is short: searches flat, by stages that differ, and with offload.

    python -m benchmarks.planned_offload [--only TEXT] [--framework megatron-lm]

Problems: ``planned_offload.yaml``. Steps are predicted, in closed form and event by event for the best with offload;
nothing was run. Prints Markdown.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from forerun.search import Exploring, Request, explore_request, search_request
from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.request.resolve import resolve
from forerun.simulator.events import event_scores
from forerun.spaces.strategies import table_of

PROBLEMS = Path(__file__).resolve().with_suffix(".yaml")
SEARCHES: tuple[tuple[str, ...], ...] = ((), ("layers", "recompute"), ("layers", "recompute", "offload"))
HEAD = (
    *("problem", "flat s", "layers, recompute s", "with offload s", "over flat %", "over both %", "OOM risk %"),
    *("event by event s", "CPU s of the three", "best with offload"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest row of a search (None where nothing fits), and its seconds of CPU."""

    row: Row | None
    cpu_s: float

    @property
    def text(self) -> str:
        """Its step in seconds."""
        return "none fits" if self.row is None else f"{self.row.step_time_s:.2f}"


def main() -> None:
    """Print one line per problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="problems whose model and cluster have this text")
    parser.add_argument("--framework", default="megatron-lm")
    args = parser.parse_args()
    document = yaml.safe_load(PROBLEMS.read_text(encoding="utf-8"))
    print(f"| {' | '.join(HEAD)} |")
    print("|---|" + "---:|" * (len(HEAD) - 2) + "---|")
    with tempfile.TemporaryDirectory() as folder:
        for problem in document["problems"]:
            if args.only in f"{problem['model']} {problem['cluster']}":
                named = {
                    part: _named(document[f"{part}s"], problem[part], Path(folder)) for part in ("model", "cluster")
                }
                request = Request(**{**problem, **named}, framework=args.framework, top=3)
                print(_line(problem, request), flush=True)


def _named(known: dict[str, Any], name: str, folder: Path) -> str:
    """Return the name of a catalogue entry, or the file that a document of ours is written to."""
    if name not in known:
        return name
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(known[name]), encoding="utf-8")
    return str(path)


def _line(problem: dict[str, Any], request: Request) -> str:
    flat, both, offload = (_search(request, words) for words in SEARCHES)
    cells = [f"{problem['model']}, {problem['gpus']} {problem['cluster']}, batch {problem['global_batch']}"]
    cells += [flat.text, both.text, offload.text, _gain(flat, offload), _gain(both, offload)]
    if offload.row is None:
        return f"| {' | '.join(cells)} | | | | |"
    events_s = float(event_scores(resolve(request).context, table_of([offload.row.strategy])).step_time_s[0])
    cells += [f"{100 * (offload.row.oom_risk or 0):.0f}", f"{events_s:.2f}"]
    cells += [", ".join(f"{one.cpu_s:.1f}" for one in (flat, both, offload)), str(offload.row.strategy)]
    return f"| {' | '.join(cells)} |"


def _gain(before: Found, after: Found) -> str:
    """Return by how many per cent more tokens pass per second."""
    if before.row is None or after.row is None:
        return ""
    return f"{100 * (before.row.step_time_s / after.row.step_time_s - 1):+.1f}"


def _search(request: Request, words: tuple[str, ...]) -> Found:
    start = os.times()
    try:
        board: Leaderboard | None = (
            explore_request(request, exploring=Exploring(per_stage=words)) if words else search_request(request)
        )
    except NothingFeasible:
        board = None
    end = os.times()
    rows = () if board is None else board.rows
    return Found(min(rows, key=lambda row: row.step_time_s, default=None), end.user - start.user)


if __name__ == "__main__":
    main()
