"""Starts given by the user: as text, or in the results of an earlier search."""

from pathlib import Path
from typing import Any

from forerun.search.request.setting import Setting, legal_strategy
from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import read_text
from forerun.spaces.strategies import Strategy, parse_strategy
from forerun.spaces.strategies.staged_space import StagedSpace

RESULTS = ("leaderboard.json", "best.json")
"""Files of a folder with strategies, best source first."""
LARGEST_RESULT = 1 << 28
"""Bytes; see ``board.folder``."""


def given_starts(setting: Setting, space: StagedSpace, given: tuple[str, ...]) -> tuple[list[Strategy], list[str]]:
    """Return the user's strategies that are legal in this space, in canonical form, and notes on others.

    Raises:
        RequestError: a text is neither a strategy nor a file of results, or a strategy given as text breaks a law.
    """
    found: list[Strategy] = []
    notes = []
    for text in given:
        path = Path(text)
        if not (path.exists() or text.endswith(".json")):
            found.append(space.canonical(legal_strategy(setting, text)))
            continue
        strategies = [space.canonical(strategy) for strategy in _read(path)]
        kept = [s for s, keeps in zip(strategies, space.legal(strategies), strict=True) if keeps]
        found += kept
        notes.append(f"{len(kept)} of {len(strategies)} strategies of {text} are in this space and used as starts")
    outside = [s for s, keeps in zip(found, space.legal(found), strict=True) if not keeps]
    notes += [f"{strategy} is outside the search space and is not used as a start" for strategy in outside]
    return [strategy for strategy in dict.fromkeys(found) if strategy not in outside], notes


def _read(path: Path) -> list[Strategy]:
    """Return the strategies of a file or folder of results.

    Raises:
        RequestError: there are no strategies.
    """
    if path.is_dir():
        files = [path / name for name in RESULTS if (path / name).exists()]
        if not files:
            raise RequestError(f"{path} has no {' or '.join(RESULTS)} to start from")
        return [strategy for file in files for strategy in _read(file)]
    text = read_text(path, most=LARGEST_RESULT, kind="a result")
    try:
        document: Any = read_json(text, str(path), own=True)
        rows = document["leaderboard"] if "leaderboard" in document else [document]
        return [parse_strategy(str(row["strategy"])) for row in rows]
    except (RequestError, KeyError, TypeError):
        raise RequestError(
            f"{path} is no result of a search; name its leaderboard.json or best.json, or write a strategy like "
            '"tp8 pp2 dp4 mbs1"'
        ) from None
