"""The request behind a leaderboard, to ask for what the leaderboard does not hold."""

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.request.request import Request


def request_again(board: Leaderboard, *, gpus: int | None = None) -> Request:
    """Return the request of a leaderboard for one number of GPUs (None: a strategy decides).

    Raises:
        TypeError, ValueError: a value has another form than a search writes.
    """
    asked = board.request
    imbalance, calibration, risk = (asked.get(name) for name in ("moe_imbalance", "calibration", "oom_risk"))
    overrides = asked.get("overrides") or {}
    return Request(
        model=str(asked["model"]),
        cluster=str(asked["cluster"]),
        global_batch=int(asked["global_batch"]),
        seq_len=int(asked["seq_len"]),
        gpus=None if gpus is None else str(gpus),
        precision=str(asked["precision"]),
        framework=str(asked["framework"]),
        oom_risk=None if risk is None else float(risk),
        moe_imbalance=None if imbalance is None else float(imbalance),
        overrides={str(axis): list(values) for axis, values in overrides.items()} if gpus is not None else {},
        profile=None if asked.get("profile") is None else str(asked["profile"]),
        calibration=None if calibration is None else str(calibration),
        ignored_config_fields=tuple(map(str, asked.get("ignored_config_fields") or ())),
    )
