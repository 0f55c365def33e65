"""Changes to a request with which something fits.

Each change is verified by a search that finds a feasible strategy.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forerun.search.answer.notes.making_room import SWITCHES, TRAFFIC
from forerun.search.answer.other_software import lean, other_frameworks, switch_words, with_switches
from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import best_row
from forerun.search.formats.launchable import marked
from forerun.search.order.worth import with_failed_starts
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator.memory.risk import risking
from forerun.spaces.errors import ForerunError

GROWTHS = (2, 4, 8, 16, 32, 64)
"""Factors on the device count tried in turn; then more between the last that fails and the first that fits."""
NEXT_NODES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change to the request, in words, and a strategy that it makes feasible.

    ``tree``: that strategy if it is a tree. ``flags``: flags to add to the command; empty without flags, or if a launch
    needs more.
    """

    change: str
    row: Row
    tree: str = ""
    flags: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fix as plain data."""
        document = {"change": self.change, "row": self.row.to_json(), "tree": self.tree, "flags": self.flags}
        return {name: value for name, value in document.items() if value}


def fixes(setting: Setting, score: Scorer) -> Iterator[Fix]:
    """Yield changes that help: fewer restrictions first, then switches, another framework, more devices, less work."""
    yield from filter(None, [_more_risk(setting, score)])
    first = next(filter(None, (_try(*change, score, flags="") for change in relaxed(setting))), None)
    if first is not None:
        yield first
        return
    yield from filter(None, [_on_the_host(setting, score)])
    yield from _with_room(setting, score)
    yield from _other_frameworks(setting, score)
    yield from filter(None, [_more_devices(setting, score)])
    yield from filter(None, [_other_batch(setting, score), _shorter_sequence(setting, score)])


def relaxed(setting: Setting) -> list[tuple[str, Setting]]:
    """Return the setting without each restriction, each pair of restrictions, and all restrictions of the user."""
    overrides = setting.request.overrides
    freed = [axes for count in (1, 2) for axes in itertools.combinations(overrides, count)]
    freed += [tuple(overrides)] if len(overrides) > 2 else []
    return [
        (
            f"do not restrict {' and '.join(axes)}",
            _with_request(setting, overrides={axis: values for axis, values in overrides.items() if axis not in axes}),
        )
        for axes in freed
    ]


def _more_risk(setting: Setting, score: Scorer) -> Fix | None:
    """Find the lowest OOM risk at which something fits, if the user limited it."""
    if setting.request.oom_risk is None:
        return None
    unlimited = dataclasses.replace(setting, context=risking(setting.context, None))
    fix = _try("", dataclasses.replace(unlimited, objective="headroom"), score)
    if fix is None:
        return None
    percent = math.ceil(100 * fix.row.oom_risk)
    return dataclasses.replace(fix, change=f"--oom-risk {percent}%", flags=f"--oom-risk {percent}%")


def _on_the_host(setting: Setting, score: Scorer) -> Fix | None:
    """Find the fastest strategy that fits with the tensors that the framework can offload to the host."""
    # The event level and trees, which a search does not import.
    from forerun.search.explore.trees.hosted import best_hosted
    from forerun.spaces.trees.vary import host_words

    profile = setting.context.framework
    try:
        hosted = best_hosted(setting, score)
    except ForerunError:
        return None
    if hosted is None:
        return None
    change = f"{host_words(profile.host_tensors)} ({profile.host_setting})"
    return Fix(change=change, row=marked(setting.context, hosted.row), tree=hosted.tree)


def _with_room(setting: Setting, score: Scorer) -> list[Fix]:
    """Find the fastest strategy that fits with one memory-saving switch, or with two if one is not enough."""
    for count in (1, 2):
        some = itertools.combinations(_saving(setting), count)
        settings = [{name: SWITCHES[name][0] for name in names} for names in some]
        if fixes := _fastest(_with(setting, switches, score) for switches in settings):
            return fixes
    return []


def _saving(setting: Setting) -> list[str]:
    """Return the switches that save memory and that the user did not set."""
    return [name for name in SWITCHES if name not in (*TRAFFIC, *setting.request.switches)]


def _with(setting: Setting, switches: Mapping[str, str], score: Scorer) -> Fix | None:
    changed = with_switches(setting, switches)
    flags, lacking = switch_words(setting.context, switches)
    if changed is None:
        return None
    return _try(f"{flags} ({lacking})" if lacking else flags, changed, score, flags="" if lacking else flags)


def _other_frameworks(setting: Setting, score: Scorer) -> list[Fix]:
    """Find the fastest feasible strategy of another launchable framework, with a memory-saving switch if needed."""
    others = list(other_frameworks(setting))
    if fixes := _fastest(_launched(flag, other, score) for flag, other in others):
        return fixes
    return _fastest(
        _launched(f"{flag} --with {name}", changed, score)
        for flag, other in others
        for name in _saving(setting)
        if (changed := with_switches(other, {name: SWITCHES[name][0]})) is not None
        and not switch_words(other.context, {name: SWITCHES[name][0]})[1]
    )


def _launched(flags: str, setting: Setting, score: Scorer) -> Fix | None:
    """Try a change; None also if no launch file can express the result."""
    fix = _try(flags, setting, score)
    return None if fix is None or marked(setting.context, fix.row).lacks_launch_file else fix


def _more_devices(setting: Setting, score: Scorer) -> Fix | None:
    """Try the next whole nodes, then double until something fits, and search between the last two numbers."""
    cluster, largest = setting.context.cluster, max(setting.gpus or (1,))
    node = cluster.devices_per_node
    rounded = -(-largest // node) * node
    first = rounded if rounded > largest else rounded + node
    for count in range(first, min(rounded + NEXT_NODES * node, cluster.max_devices) + 1, node):
        if (fix := _try_devices(setting, count, largest, score)) is not None:
            return fix
    failed = rounded
    for factor in GROWTHS:
        count = rounded * factor
        if count > cluster.max_devices:
            return None
        if (fix := _try_devices(setting, count, largest, score)) is not None:
            return _fewer_devices(setting, failed, fix, largest, score)
        failed = count
    return None


def _fewer_devices(setting: Setting, failed: int, fix: Fix, present: int, score: Scorer) -> Fix:
    """Return a fix with fewer devices, above ``failed``, by eighths of the gap and then of the remaining gap."""
    node = setting.context.cluster.devices_per_node
    step = fix.row.gpus - failed
    while step > node:
        step = -(-step // (8 * node)) * node
        for count in range(failed + step, fix.row.gpus, step):
            better = _try_devices(setting, count, present, score)
            if better is not None:
                fix = better
                break
            failed = count
    return fix


def _try_devices(setting: Setting, count: int, present: int, score: Scorer) -> Fix | None:
    changed = dataclasses.replace(setting, gpus=(count,))
    return _try(f"{count - present} more GPUs ({count})", changed, score, flags=f"--gpus {count}")


def _other_batch(setting: Setting, score: Scorer) -> Fix | None:
    """Try the nearest multiples of the device count: no legal candidate needs a larger batch."""
    batch, gpus = setting.context.workload.global_batch, max(setting.gpus or (1,))
    multiples = sorted({max(1, batch // gpus) * gpus, -(-batch // gpus) * gpus} - {batch}, key=lambda n: abs(n - batch))
    for multiple in multiples:
        workload = dataclasses.replace(setting.context.workload, global_batch=multiple)
        other = dataclasses.replace(setting, context=dataclasses.replace(setting.context, workload=workload))
        if (fix := _try(f"--global-batch {multiple}", other, score)) is not None:
            return fix
    return None


def _shorter_sequence(setting: Setting, score: Scorer) -> Fix | None:
    length = setting.context.workload.seq_len
    while length % 2 == 0 and length > 512:
        length //= 2
        workload = dataclasses.replace(setting.context.workload, seq_len=length)
        shorter = dataclasses.replace(setting, context=dataclasses.replace(setting.context, workload=workload))
        if (fix := _try(f"--seq-len {length}", shorter, score)) is not None:
            return fix
    return None


def _fastest(candidates: Iterable[Fix | None]) -> list[Fix]:
    """Return the fix whose steps are the shortest, failed starts included."""
    present = [fix for fix in candidates if fix is not None]
    return sorted(present, key=lambda fix: with_failed_starts(fix.row.step_time_s, fix.row.oom_risk))[:1]


def _with_request(setting: Setting, **changes: Any) -> Setting:
    return dataclasses.replace(setting, request=dataclasses.replace(setting.request, **changes))


def _try(change: str, setting: Setting, score: Scorer, *, flags: str | None = None) -> Fix | None:
    """Search the candidates with least memory of a changed setting.

    Return None if nothing is feasible or the change is contradictory. ``flags``: flags that make the ``change`` (None:
    the change itself).
    """
    try:
        row = best_row(setting, overrides=lean(setting), score=score)
    except ForerunError:
        return None
    return None if row is None else Fix(change=change, row=row, flags=change if flags is None else flags)
