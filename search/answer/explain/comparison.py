"""Comparison of two strategies: predictions and differences by part."""

import html
from dataclasses import dataclass, replace
from typing import Any

from forerun.search.answer.explain.why import against, trust
from forerun.search.answer.intervals import certain
from forerun.search.board.leaderboard import flat_line
from forerun.search.board.notebook import Picture, step_picture
from forerun.search.board.rows import AnyRow, rows_of
from forerun.search.request.model_kind import AnyContext, AnyStrategy
from forerun.search.request.setting import Setting, legal_strategy
from forerun.spaces.frames import frame_of

INDISTINGUISHABLE = " The calibration cannot distinguish the two."


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two predictions, and their differences as text."""

    first: AnyRow
    second: AnyRow
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the rows and the second's differences from the first, in seconds and GiB."""
        first, second = self.first, self.second
        return {
            "rows": [first.to_json(), second.to_json()],
            "difference_s": {part: second.breakdown_s[part] - value for part, value in first.breakdown_s.items()},
            "difference_gib": {part: second.memory_gib[part] - value for part, value in first.memory_gib.items()},
            "text": self.text,
        }

    def to_pandas(self) -> Any:
        """Return both rows as a ``pandas.DataFrame``.

        Raises
        ------
        RequestError
            Pandas is not installed.
        """
        return frame_of([flat_line(row.to_json()) for row in (self.first, self.second)])

    def plot(self) -> Picture:
        """Draw both steps on one scale, each as a bar of its parts."""
        rows = {"A": self.first, "B": self.second}
        return step_picture({f"{letter}. {row.name}": row.breakdown_s for letter, row in rows.items()})

    def _repr_html_(self) -> str:
        return f"{self.first._repr_html_()}{self.second._repr_html_()}<p>{html.escape(self.text)}</p>"


def compare_strategies(
    setting: Setting[AnyContext], first: "str | AnyStrategy", second: "str | AnyStrategy"
) -> Comparison:
    """Predict two strategies of one setting and describe their differences.

    Raises
    ------
    RequestError
        A strategy is illegal.
    """
    strategies = [legal_strategy(setting, strategy) for strategy in (first, second)]
    rows = rows_of(setting.context, strategies, usd_per_gpu_hour=setting.usd_per_gpu_hour)
    one, other = certain(setting.context, tuple(replace(row, rank=place) for place, row in enumerate(rows, start=1)))
    text = against(one, other, name="B") + trust(one, other)
    if other.same_as_rank is not None:
        text += INDISTINGUISHABLE
    return Comparison(first=replace(one, rank=None), second=replace(other, rank=None), text=text)
