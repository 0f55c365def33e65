"""Limits that follow from a table of keys: launches that the written keys cannot express are refused."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from forerun.search.formats.contract import Limit
from forerun.search.formats.keys import Launcher, LaunchKey
from forerun.search.formats.limits import DEFAULT_PLACEMENT, no_experts, only, precisions, when, without
from forerun.spaces.strategies import ALL_REPLICAS, SPELLING, Recompute, Schedule

ALONE = {"schedule": Schedule.ONE_F_ONE_B, "vpp": 1}
"""The schedule of a launcher without a key for schedules."""
SHARING = ("shard", "replicate", "instances")
"""Decisions on the number of replicas per set of states."""


def by_keys(launcher: Launcher, *, besides: Collection[str] = (), **shared: str) -> tuple[Limit, ...]:
    """Return the limits of a launcher that writes the keys of its table and no more.

    Parameters
    ----------
    launcher
        The table.
    besides
        Decisions expressed without a key of the table, or with separate limits.
    **shared
        Further reasons for missing keys by decision, common to several launchers.
    """
    reasons = {**launcher.reasons, **shared}
    keys = [key for key in launcher.keys if key.written is not False]
    lacking = {"pp", "tp", "cp", "ep", "etp", "sp", "schedule", "placement", "sharing"}
    lacking -= {key.decides for key in keys} | {*besides}
    if any(key.decides in SHARING for key in keys):
        lacking.discard("sharing")

    def reason(decision: str) -> str:
        return reasons.get(decision, f"{launcher.title} has no setting for it")

    limits = [without(axis, reason(axis)) for axis in ("pp", "tp", "cp") if axis in lacking]
    if "ep" in lacking:
        limits.append(no_experts(reason("ep")))
    elif "etp" in lacking:
        limits.append(when(lambda s: s.etp > 1, f"etp > 1: {reason('etp')}", etp=1))
    if "sp" in lacking:
        limits.append(when(lambda s: s.sp, f"sp: {reason('sp')}", sp=False))
    if "schedule" in lacking and "pp" not in lacking:
        limits.append(only("schedule", (Schedule.ONE_F_ONE_B,), reason("schedule"), **ALONE))
    limits += [DEFAULT_PLACEMENT] if "placement" in lacking and "pp" not in lacking else []
    if "sharing" in lacking:
        text = reasons.get("sharing", "it shards over all replicas")
        limits.append(when(lambda s: s.shard != ALL_REPLICAS, "shard={s.shard}: " + text, shard=ALL_REPLICAS))
    return (*limits, *_of_words(launcher, keys, besides, reasons))


def _of_words(
    launcher: Launcher, keys: list[LaunchKey], besides: Collection[str], reasons: Mapping[str, str]
) -> Iterator[Limit]:
    """Iterate over the limits of decisions to choices with a word."""
    settings: dict[str, list[Any]] = {name: [] for name in ("zero", "recompute", "schedule", "precision")}
    for key in keys:
        if key.decides in settings and key.decides not in besides:
            settings[key.decides] += [meaning for meaning in (key.words or {}).values() if meaning is not None]
    unnamed: dict[str, tuple[list[Any], list[Any]]] = {
        "zero": ([0], []),
        "recompute": ([], [Recompute.NONE]),
        "schedule": ([Schedule.ONE_F_ONE_B], []),
        "precision": ([], [] if "precision" in launcher.assumed else ["fp32"]),
    }
    for decision, meanings in settings.items():
        if not meanings:
            continue
        first, last = unnamed[decision]
        choices = (*dict.fromkeys([*first, *meanings, *last]),)
        names = [SPELLING[decision][int(one)] if decision in SPELLING else str(one) for one in choices]
        text = reasons.get(decision, f"{launcher.title} has only {', '.join(names)}")
        if decision == "precision":
            yield precisions(choices, text)
        else:
            mended = {"zero": {"zero": max(meanings)}, "schedule": ALONE}.get(decision, {})
            yield only(decision, choices, text, **mended)
