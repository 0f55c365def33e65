"""Texts of numbers and names on the page."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.request.request import set_switches
from forerun.spaces.frameworks import settings_text
from forerun.spaces.strategies import RULES
from forerun.spaces.units import format_count

REASONS: Mapping[str, str] = {
    **{rule.code: rule.meaning for rule in RULES},
    "memory": "legal, and does not fit in memory",
    "slower": "legal, and not scored: compute and exposed communication alone take longer than the best",
}
"""Meaning of the reason codes of rejected candidates."""

REQUEST_NAMES: Mapping[str, str] = {
    "model": "model, as asked",
    "model_name": "model",
    "cluster": "cluster, as asked",
    "cluster_name": "cluster",
    "global_batch": "global batch (sequences or samples)",
    "seq_len": "sequence length (tokens)",
    "gpus": "GPUs, as asked",
    "gpu_counts": "GPU counts searched",
    "usd_per_hour": "budget (USD per hour)",
    "usd_per_gpu_hour": "price (USD per GPU-hour)",
    "moe_imbalance": "expert imbalance",
    "lora": "adapters (rank and products)",
    "freeze": "parts that are not trained",
    "documents": "documents of a packed sequence (tokens)",
    "tokens": "tokens of the training",
    "train_within_s": "longest training (seconds)",
    "train_usd": "most that the training may cost (USD)",
    "oom_risk": "highest risk of running out of memory",
    "goodput": "failures and checkpoints",
    "top": "rows kept",
    "profile": "profile of the machine",
    "calibration": "calibration to measured runs",
    "overrides": "axes restricted",
    "seconds_per_sample": "measured seconds of a sample on one GPU",
    "allow_generic": "operators without a rule allowed",
    "shapes": "extents of inputs",
    "ignored_config_fields": "fields of the configuration ignored",
}

FLAGS = (
    ("cluster", "--cluster"),
    ("gpus", "--gpus"),
    ("usd_per_hour", "--usd-per-hour"),
    ("usd_per_gpu_hour", "--usd-per-gpu-hour"),
    ("global_batch", "--global-batch"),
    ("seq_len", "--seq-len"),
    ("precision", "--precision"),
    ("framework", "--framework"),
    ("objective", "--objective"),
    ("tokens", "--tokens"),
    ("train_within_s", "--train-within"),
    ("train_usd", "--train-usd"),
    ("oom_risk", "--oom-risk"),
    ("goodput", "--goodput"),
    ("moe_imbalance", "--moe-imbalance"),
    ("lora", "--lora"),
    ("freeze", "--freeze"),
    ("documents", "--documents"),
    ("top", "--top"),
    ("profile", "--profile"),
    ("calibration", "--calibration"),
    ("seconds_per_sample", "--seconds-per-sample"),
    ("optimizer", "--optimizer"),
)
"""Field of a request -> flag of ``forerun search``."""


def gpus_text(board: Leaderboard) -> str:
    """Return ``512 GPUs`` or ``8 to 64 GPUs``."""
    counts = board.request["gpu_counts"]
    return f"{counts[0]:,} GPUs" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} GPUs"


def heading(board: Leaderboard) -> str:
    """Return the title of the page."""
    return f"{board.request['model_name']} on {gpus_text(board)} of {board.request['cluster_name']}"


def command(board: Leaderboard) -> str:
    """Return the equivalent command, quoted for a POSIX shell, one flag per line."""
    request = board.request
    lines = [shlex.join(["forerun", "search", str(request.get("model", request["model_name"]))])]
    for field, flag in FLAGS:
        if request.get(field) is not None:
            lines.append(f"{flag} {shlex.quote(_plain(request[field]))}")
    overrides = request.get("overrides") or {}
    for axis, values in overrides.items():
        lines.append(f"--set {shlex.quote(f'{axis}=' + ','.join(map(str, values)))}")
    for field in ("all_variants", "allow_generic", "inference"):
        if request.get(field):
            lines.append(f"--{field.replace('_', '-')}")
    if switches := set_switches(request):
        lines.append(f"--with {shlex.quote(settings_text(switches).replace(' ', ''))}")
    lines += [f"--shape {shlex.quote(str(shape))}" for shape in request.get("shapes") or ()]
    lines += [f"--ignore-config-field {shlex.quote(str(name))}" for name in request.get("ignored_config_fields") or ()]
    lines += [f"--baseline {shlex.quote(str(name))}" for name in request.get("baseline") or ()]
    if request.get("measured") is not None:
        lines.append(f"--measured {shlex.quote(str(request['measured']))}")
    return " \\\n    ".join(lines)


def request_lines(board: Leaderboard) -> list[tuple[str, str]]:
    """Return the name and the text of every input."""
    return [
        (REQUEST_NAMES.get(name, name.replace("_", " ")), _text(value))
        for name, value in board.request.items()
        if value is not None
    ]


def _plain(value: object) -> str:
    """Return a number without a needless ``.0`` or exponent, readable by flags."""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, float):
        return format_count(value) if value >= 1e6 else f"{value:g}"
    return str(value)
