"""Candidates of a tuning: the best rows of a search that a launch script can start."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import SECONDS_PER_DAY, Row
from forerun.search.request.setting import Setting
from forerun.search.tune.choice import Candidate
from forerun.search.tune.launch_files import LaunchWriter
from forerun.search.tune.proposals import CANDIDATES
from forerun.spaces.errors import RequestError

REASONS = 3
"""Reasons that are named where no row can be launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningCandidates:
    """Candidates of a tuning.

    Attributes
    ----------
    setting
        The request with all defaults.
    board
        Leaderboard of the search.
    writer
        Writer of launch files.
    rows
        Rows of the leaderboard with a launch script, by the text of their strategies, in rank order.
    """

    setting: Setting
    board: Leaderboard
    writer: LaunchWriter
    rows: Mapping[str, Row]

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
        return [Candidate.of_row(row) for row in self.rows.values()]


def candidates_of(setting: Setting, board: Leaderboard, writer: LaunchWriter) -> TuningCandidates:
    """Return the rows of a leaderboard that can be launched.

    Raises
    ------
    RequestError
        No row can be launched; the message names the reasons.
    """
    rows: dict[str, Row] = {}
    reasons: dict[str, None] = {}
    for row in board.rows[:CANDIDATES]:
        try:
            writer.files(row.strategy, Path("run"), row.name)
        except RequestError as error:
            reasons[str(error)] = None
            continue
        rows[row.name] = row
    if not rows:
        lines = [f"  {reason}" for reason in list(reasons)[:REASONS]]
        raise RequestError("\n".join(["no row of the leaderboard can be launched:", *lines]))
    return TuningCandidates(setting=setting, board=board, writer=writer, rows=rows)
