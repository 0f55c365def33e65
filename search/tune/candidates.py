"""Candidates of a tuning: the best rows of a search that a launch script can start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forerun.search.board.evidence import DEVICE, NOTHING
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import SECONDS_PER_DAY, Row
from forerun.search.order.worth import launch_factor
from forerun.search.request.setting import Setting
from forerun.search.tune.choice import Candidate
from forerun.search.tune.launch_files import LaunchWriter
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, table_of

CANDIDATES = 200
"""Number of best rows among which runs are chosen; later rows are unlikely to be the best."""
REASONS = 3
"""Most reasons named if no row can be launched."""


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
    refused
        Reasons why other rows have no launch script, by the text of their strategies.
    """

    setting: Setting
    board: Leaderboard
    writer: LaunchWriter
    rows: Mapping[str, Row]
    refused: Mapping[str, str]

    @property
    def training_s(self) -> float | None:
        """Seconds of the whole training by row one; None if its length is unknown."""
        days = self.first.train_days
        return None if days is None else days * SECONDS_PER_DAY

    @property
    def first(self) -> Row:
        """First launchable row."""
        return next(iter(self.rows.values()))

    def of_choice(self) -> list[Candidate]:
        """Return the rows as candidates for the choice of runs."""
        return candidates_among(self.setting.context, list(self.rows.values()))

    @property
    def measured(self) -> bool:
        """Whether runs of this software were ever measured."""
        evidence = self.first.evidence
        return evidence is None or evidence.level not in (DEVICE, NOTHING)


def candidates_among(context: Context, rows: Sequence[Row], *, by_place: bool = False) -> list[Candidate]:
    """Return rows as candidates for the choice of runs; keys are strategies, or positions of the rows."""
    dislikes = launch_factor(context, table_of([row.strategy for row in rows])) - 1
    keys = [str(place) if by_place else row.name for place, row in enumerate(rows)]
    return [Candidate.of_row(*one) for one in zip(rows, keys, dislikes.tolist(), strict=True)]


def candidates_of(setting: Setting, board: Leaderboard, writer: LaunchWriter) -> TuningCandidates:
    """Return the rows of a leaderboard that can be launched.

    Raises
    ------
    RequestError
        No row can be launched; the message names the reasons.
    """
    rows, refused = dict[str, Row](), dict[str, str]()
    for row in board.rows[:CANDIDATES]:
        try:
            writer.files(row.strategy, Path("run"), row.name)
        except RequestError as error:
            refused[row.name] = str(error)
            continue
        rows[row.name] = row
    if not rows:
        lines = [f"  {reason}" for reason in list(dict.fromkeys(refused.values()))[:REASONS]]
        raise RequestError("\n".join(["no row of the leaderboard can be launched:", *lines]))
    return TuningCandidates(setting=setting, board=board, writer=writer, rows=rows, refused=refused)
