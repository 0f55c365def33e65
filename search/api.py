"""Verbs of the command line as Python functions."""

from typing import TYPE_CHECKING, Any

from forerun.search.answer.intervals import certain
from forerun.search.answer.searches import search_request
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row, rows_of
from forerun.search.request.model_kind import AnyContext, AnyStrategy
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.scorer import Progress, Scorer
from forerun.search.request.setting import Setting, legal_strategy
from forerun.search.workers import Choice
from forerun.simulator import score as simulator_score
from forerun.spaces.strategies import Strategy

if TYPE_CHECKING:
    from forerun.search.answer.explain.explain import Explanation


def search(
    model: str,
    *,
    progress: Progress | None = None,
    score: Scorer = simulator_score,
    workers: Choice | None = None,
    **fields: Any,
) -> Leaderboard:
    """Search the best strategies for a model; ``fields``: fields of ``Request``. See ``search_request``.

    >>> search("llama3-8b", cluster="dgx-h100", gpus=64, global_batch=256, seq_len=8192).rows[0].gpus
    64

    Raises
    ------
    RequestError
        The request is wrong.
    NothingFeasible
        Nothing fits; the error names helpful changes.
    """
    if "gpus" in fields and fields["gpus"] is not None:
        fields["gpus"] = str(fields["gpus"])
    return search_request(Request(model=model, **fields), progress=progress, score=score, workers=workers)


def simulate(model: str, *, strategy: str | Strategy, score: Scorer = simulator_score, **fields: Any) -> Row:
    """Predict one strategy; ``fields``: fields of ``Request``.

    Raises
    ------
    RequestError
        The request is wrong or the strategy illegal; the message names every broken law.
    """
    setting = resolve(Request(model=model, **fields))
    return simulate_setting(setting, strategy, score=score)


def simulate_setting(
    setting: Setting[AnyContext], strategy: "str | AnyStrategy", *, score: Scorer = simulator_score
) -> Row[Any]:
    """Predict one strategy, given as a value or as text.

    Raises
    ------
    RequestError
        The strategy is illegal.
    """
    legal = legal_strategy(setting, strategy)
    rows = rows_of(setting.context, [legal], usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
    return certain(setting.context, rows)[0]


def explain(model: str, *, strategy: str | Strategy, score: Scorer = simulator_score, **fields: Any) -> "Explanation":
    """Explain a strategy and its neighbours in one axis; ``fields``: fields of ``Request``.

    Raises
    ------
    RequestError
        The request is wrong or the strategy illegal, or the model is an operator graph.
    """
    from forerun.search.answer.explain.explain import explain_strategy

    setting = resolve(Request(model=model, **fields))
    legal = legal_strategy(setting, strategy)
    return explain_strategy(setting.context, legal, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
