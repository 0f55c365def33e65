"""The request behind a leaderboard, to ask for what the leaderboard does not hold."""

import dataclasses

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.request.request import Request, Setting, resolve


def setting_again(board: Leaderboard, *, gpus: int | None = None) -> Setting:
    """Return what a leaderboard's request means for one number of GPUs (None: a strategy decides), without its limits.

    Raises:
        RequestError: the model or the cluster is not at hand any more.
        KeyError, TypeError, ValueError: a value has another form than a search writes.
    """
    request = dataclasses.replace(
        Request.from_json(board.request),
        gpus=None if gpus is None else str(gpus),
        usd_per_hour=None,
        train_within_s=None,
        train_usd=None,
    )
    return resolve(request if gpus is not None else dataclasses.replace(request, overrides={}), groups=True)
