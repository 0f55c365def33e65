"""The request of a leaderboard, for answers missing in the leaderboard."""

import dataclasses
from dataclasses import dataclass

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.spaces.errors import ForerunError


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Today's ``setting`` of a leaderboard's request, without limits and number of GPUs.

    It is None if the model or cluster named in ``missing`` is unavailable.
    """

    setting: Setting[AnyContext] | None
    missing: str = ""


def request_behind(board: Leaderboard) -> Behind:
    """Resolve the request of a leaderboard, once for all sections of a page."""
    try:
        request = Request.from_json(board.request)
        bare = dataclasses.replace(request, gpus=None, usd_per_hour=None, train_within_s=None, train_usd=None)
        return Behind(setting=resolve(bare, groups=True))
    except (ForerunError, KeyError, TypeError, ValueError) as error:
        return Behind(setting=None, missing=str(error))
