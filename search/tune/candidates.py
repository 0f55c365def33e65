"""Candidates of a tuning: the best rows of a search that a launch script can start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import SECONDS_PER_DAY, Row
from forerun.search.request.setting import Setting
from forerun.search.tune.choice import Candidate
from forerun.search.tune.launch_files import LaunchWriter
from forerun.search.tune.proposals import CANDIDATES
from forerun.spaces.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningCandidates:
    """Candidates of a tuning.

    Attributes
    ----------
    setting
        What the request means.
    board
        Leaderboard of the search.
    rows
        Its rows with a launch script, by the text of their strategies, in rank order.
    refused
        Number of rows without one, by the reason of the first.
    """

    setting: Setting
    board: Leaderboard
    writer: LaunchWriter
    rows: Mapping[str, Row]
    refused: Mapping[str, int]

    @property
    def training_s(self) -> float | None:
        """Seconds of the whole training by row one; None where its length is not known."""
        days = self.first.train_days
        return None if days is None else days * SECONDS_PER_DAY

    @property
    def first(self) -> Row:
        """Row one of those that can be launched."""
        return next(iter(self.rows.values()))

    def of_choice(self) -> list[Candidate]:
        """Return the rows as the choice of runs takes them."""
        return [
            Candidate(
                key=name,
                strategy=name,
                step_s=row.step_time_s,
                oom_probability=row.oom_risk,
                gpus=row.gpus,
            )
            for name, row in self.rows.items()
        ]


def candidates_of(setting: Setting, board: Leaderboard, writer: LaunchWriter) -> TuningCandidates:
    """Return the rows of a leaderboard that can be launched.

    Raises
    ------
    RequestError
        None can; the message has the reasons.
    """
    rows: dict[str, Row] = {}
    refused: dict[str, int] = {}
    for row in board.rows[:CANDIDATES]:
        try:
            writer.files(row.strategy, Path("run"), row.name)
        except RequestError as error:
            reason = str(error)
            refused[reason] = refused.get(reason, 0) + 1
            continue
        rows[row.name] = row
    if not rows:
        raise RequestError("no row of the leaderboard can be launched:\n" + "\n".join(_first(list(refused))))
    return TuningCandidates(setting=setting, board=board, writer=writer, rows=rows, refused=refused)


def _first(reasons: Sequence[str]) -> list[str]:
    return [f"  {reason}" for reason in reasons[:3]]
