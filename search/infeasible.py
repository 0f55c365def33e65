"""When nothing is feasible: what blocks, how close the closest candidate comes, and which change would help.

No remedy is guessed: every change that is named was searched, and something feasible was found.
"""

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.search.best import best_row
from forerun.search.candidates import strategy_at, values_at
from forerun.search.exhaustive import Piece, Problem, Scorer, slices
from forerun.search.request import Setting
from forerun.search.rows import Row, rows_of
from forerun.spaces.errors import ForerunError, InfeasibleError, RequestError
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.strategies import RULES, StrategySpace
from forerun.spaces.units import format_count, format_seconds

TOP_BLOCKERS = 3
SAMPLES = 64
"""Candidates that are looked at, evenly over the space, to find one for each law to quote."""
GROWTHS = (2, 4, 8, 16, 32, 64)
"""Factors on the device count that are tried in turn; between the last that fails and the first that fits, more are."""
NEXT_NODES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change to the request in words, and a strategy it makes feasible."""

    change: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why nothing is feasible.

    ``blockers``: candidates by reason, most first; ``laws``: the law behind a reason with the values of one candidate
    that breaks it (only where no candidate is legal). ``closest``: the legal candidate that misses by least memory.
    ``remedies``: changes that were searched and found to help, the smallest first.
    """

    legal: int
    blockers: tuple[tuple[str, int], ...]
    laws: Mapping[str, str]
    closest: Row | None
    remedies: tuple[Remedy, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as plain data."""
        return {
            "blockers": [
                {"reason": reason, "candidates": count, "law": self.laws.get(reason)} for reason, count in self.blockers
            ],
            "closest": None if self.closest is None else self.closest.to_json(),
            "excess_gib": None if self.closest is None else self.closest.excess_gib,
            "changes": [{"change": remedy.change, "row": remedy.row.to_json()} for remedy in self.remedies],
        }

    def text(self) -> str:
        """Return the diagnosis in words."""
        if self.legal:
            lines = [f"nothing is feasible: none of {self.legal:,} legal candidates fits into memory"]
        else:
            lines = ["nothing is feasible: no candidate keeps all laws"]
        lines += _blocker_lines(self.blockers, self.laws)
        if self.closest is not None:
            row = self.closest
            largest = max(row.memory_gib, key=lambda part: row.memory_gib[part])
            lines.append(
                f"closest: {row.strategy} needs {row.excess_gib:.1f} GiB less than its {row.peak_memory_gib:.1f} GiB "
                f"to fit into {row.memory_limit_gib:.1f} GiB; largest part: {largest} {row.memory_gib[largest]:.1f} GiB"
            )
        if self.remedies:
            lines.append("smallest change that makes it feasible, with an example:")
            lines += [
                f"  {remedy.change}: {remedy.row.strategy}, {remedy.row.peak_memory_gib:.1f} GiB, "
                f"{remedy.row.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
                for remedy in self.remedies
            ]
        else:
            lines.append(
                "no single change that was searched (axes, framework, more GPUs, batch, sequence length) helps"
            )
        return "\n".join(lines)


class NoAnswer(InfeasibleError):
    """A search has no row to show; ``document`` is the answer as JSON, with what is known under ``infeasible``."""

    def __init__(self, text: str, document: dict[str, Any], infeasible: dict[str, Any]) -> None:
        super().__init__(text)
        self.document = {**document, "infeasible": infeasible}


class NothingFeasible(NoAnswer):
    """Nothing fits; ``diagnosis`` says why."""

    def __init__(self, diagnosis: Diagnosis, document: dict[str, Any]) -> None:
        super().__init__(diagnosis.text(), document, diagnosis.to_json())
        self.diagnosis = diagnosis


class BeyondLimits(NoAnswer):
    """What fits takes too long or costs too much."""


def empty_space(setting: Setting, problem: Problem, piece: Piece) -> RequestError:
    """Return the error for restrictions that leave no legal candidate: the laws they meet and which one to lift."""
    blockers = _blockers(piece)
    laws = _laws(problem.space, [reason for reason, _ in blockers[:TOP_BLOCKERS]])
    lines = ["the restricted space is empty: no candidate keeps all laws", *_blocker_lines(blockers, laws)]
    freed = next((words for words, other in _relaxed(setting) if _has_legal(other)), None)
    lines.append(f"nearest fix: {freed}" if freed else "no restriction that was lifted gives a legal candidate either")
    return RequestError("\n".join(lines))


def beyond_limits(setting: Setting, score: Scorer, document: dict[str, Any]) -> BeyondLimits:
    """Return the error for a training that no strategy ends in time and within its money, with the nearest ones."""
    request, found, nearest = setting.request, [], {}
    for objective, what in (("throughput", "fastest"), ("cost", "cheapest")):
        row = best_row(setting, objective=objective, score=score)
        if row is None:
            continue
        nearest[what] = row.to_json()
        sum_usd = "" if row.train_cost_usd is None else f" and {row.train_cost_usd:,.0f} USD"
        found.append(
            f"  the {what} strategy needs {row.train_days or 0.0:,.1f} days{sum_usd}: {row.gpus:,} GPUs, {row.strategy}"
        )
    days = "" if request.train_within_s is None else f" within {format_seconds(request.train_within_s)}"
    money = "" if request.train_usd is None else f" for {request.train_usd:,.0f} USD"
    tokens = format_count(setting.context.workload.tokens or 0.0)
    lines = [f"no strategy trains {tokens} tokens{days}{money}", *found]
    lines.append("nearest fix: a later end, more money, more GPUs (--gpus), or fewer tokens")
    return BeyondLimits("\n".join(lines), document, {"message": lines[0], "nearest": nearest})


def _has_legal(setting: Setting) -> bool:
    """Whether any candidate is legal; stops at the first slice that has one."""
    return any(len(table) for _, table, _ in slices(setting.space(), 0, setting.space().size))


def _blockers(piece: Piece) -> tuple[tuple[str, int], ...]:
    """Return candidates by reason, most first. Memory is what legal candidates die of, so it precedes the laws."""
    return tuple(sorted(piece.rejected.items(), key=lambda item: (item[0] != "memory", -item[1], item[0])))


def _blocker_lines(blockers: tuple[tuple[str, int], ...], laws: Mapping[str, str]) -> list[str]:
    lines = ["top blockers, by number of candidates:"]
    for reason, number in blockers[:TOP_BLOCKERS]:
        lines.append(f"  {reason} {number:,}" + (f", such as: {laws[reason]}" if reason in laws else ""))
    return lines


def diagnose(setting: Setting, problem: Problem, piece: Piece, score: Scorer) -> Diagnosis:
    """Return why ``piece``, the whole of a space, has nothing feasible and what would help."""
    closest = None
    if piece.closest is not None and len(piece.closest):
        strategy = strategy_at(problem.space, int(piece.closest.index[0]))
        closest = rows_of(setting.context, [strategy], usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)[0]
    blockers = _blockers(piece)
    return Diagnosis(
        legal=piece.legal,
        blockers=blockers,
        laws={} if piece.legal else _laws(problem.space, [reason for reason, _ in blockers[:TOP_BLOCKERS]]),
        closest=closest,
        remedies=tuple(_remedies(setting, score)),
    )


def _laws(space: StrategySpace, reasons: Collection[str]) -> dict[str, str]:
    """Return the law behind each reason as one candidate of the space breaks it; some may not be met."""
    samples = [values_at(space, sample * (space.size - 1) // (SAMPLES - 1)) for sample in range(SAMPLES)]
    laws: dict[str, str] = {}
    for rule in RULES:
        # Laws about replicas say nothing where the degrees do not even divide the devices.
        asked = [v for v in samples if v["dp"] or "gpus" not in rule.axes or rule.code == "devices"]
        if rule.code not in reasons or not asked:
            continue
        columns = {axis: np.array([values[axis] for values in asked], dtype=np.int64) for axis in asked[0]}
        broken = np.flatnonzero(rule.illegal(columns, space.context))
        if len(broken):
            laws[rule.code] = rule.message(asked[int(broken[0])], space.context)
    return laws


def _remedies(setting: Setting, score: Scorer) -> Iterator[Remedy]:
    """Yield changes that help: fewer restrictions first, then another framework, more devices, shorter sequences."""
    yield from filter(None, [_more_risk(setting, score)])
    relaxed = filter(None, (_try(*change, score) for change in _relaxed(setting)))
    first = next(relaxed, None)
    if first is not None:
        yield first
        return
    yield from _fastest([_try(*change, score) for change in _other_frameworks(setting)])
    yield from filter(None, [_more_devices(setting, score)])
    yield from filter(None, [_other_batch(setting, score), _shorter_sequence(setting, score)])


def _relaxed(setting: Setting) -> list[tuple[str, Setting]]:
    """Return the setting without each of the user's restrictions, without each two of them, without any."""
    own = setting.request.overrides
    freed = [axes for count in (1, 2) for axes in itertools.combinations(own, count)]
    freed += [tuple(own)] if len(own) > 2 else []
    return [
        (
            f"do not restrict {' and '.join(axes)}",
            _with_request(setting, overrides={axis: values for axis, values in own.items() if axis not in axes}),
        )
        for axes in freed
    ]


def _more_risk(setting: Setting, score: Scorer) -> Remedy | None:
    """Find the lowest risk of running out of memory at which something fits, where the user bounded it."""
    if setting.request.oom_risk is None:
        return None
    whole = dataclasses.replace(setting, context=dataclasses.replace(setting.context, memory_share=1.0))
    found = _try("", dataclasses.replace(whole, objective="headroom"), score)
    if found is None:
        return None
    percent = math.ceil(100 * found.row.oom_risk)
    return dataclasses.replace(found, change=f"--oom-risk {percent}%")


def _other_frameworks(setting: Setting) -> Iterator[tuple[str, Setting]]:
    present = setting.context.framework.name
    for name in framework_names():
        # "generic" can express everything and runs nowhere.
        if name not in (present, "generic"):
            context = dataclasses.replace(setting.context, framework=load_framework(name))
            yield f"--framework {name}", dataclasses.replace(setting, context=context)


def _more_devices(setting: Setting, score: Scorer) -> Remedy | None:
    """Try the next whole nodes, then double until something fits and look for fewer between that and what failed."""
    cluster, largest = setting.context.cluster, max(setting.gpus or (1,))
    node = cluster.devices_per_node
    whole = -(-largest // node) * node
    first = whole if whole > largest else whole + node
    for count in range(first, min(whole + NEXT_NODES * node, cluster.max_devices) + 1, node):
        if (found := _try_devices(setting, count, largest, score)) is not None:
            return found
    failed = whole
    for factor in GROWTHS:
        count = whole * factor
        if count > cluster.max_devices:
            return None
        if (found := _try_devices(setting, count, largest, score)) is not None:
            return _fewer_devices(setting, failed, found, largest, score)
        failed = count
    return None


def _fewer_devices(setting: Setting, failed: int, found: Remedy, present: int, score: Scorer) -> Remedy:
    """Return a remedy with fewer devices, above ``failed``: tries eighths of the gap, then eighths of what is left."""
    node = setting.context.cluster.devices_per_node
    step = found.row.gpus - failed
    while step > node:
        step = -(-step // (8 * node)) * node
        for count in range(failed + step, found.row.gpus, step):
            better = _try_devices(setting, count, present, score)
            if better is not None:
                found = better
                break
            failed = count
    return found


def _try_devices(setting: Setting, count: int, present: int, score: Scorer) -> Remedy | None:
    return _try(f"{count - present} more GPUs ({count})", dataclasses.replace(setting, gpus=(count,)), score)


def _other_batch(setting: Setting, score: Scorer) -> Remedy | None:
    """Try the nearest multiples of the device count: no legal candidate needs more than that of a batch."""
    batch, gpus = setting.context.workload.global_batch, max(setting.gpus or (1,))
    multiples = sorted({max(1, batch // gpus) * gpus, -(-batch // gpus) * gpus} - {batch}, key=lambda n: abs(n - batch))
    for multiple in multiples:
        workload = dataclasses.replace(setting.context.workload, global_batch=multiple)
        other = dataclasses.replace(setting, context=dataclasses.replace(setting.context, workload=workload))
        if (found := _try(f"--global-batch {multiple}", other, score)) is not None:
            return found
    return None


def _shorter_sequence(setting: Setting, score: Scorer) -> Remedy | None:
    length = setting.context.workload.seq_len
    while length % 2 == 0 and length > 512:
        length //= 2
        workload = dataclasses.replace(setting.context.workload, seq_len=length)
        shorter = dataclasses.replace(setting, context=dataclasses.replace(setting.context, workload=workload))
        remedy = _try(f"--seq-len {length}", shorter, score)
        if remedy is not None:
            return remedy
    return None


def _lean(setting: Setting) -> dict[str, Sequence[object]]:
    """Return the user's restrictions and, on axes without any, the choices that need least memory: where these do not
    fit, nothing does, and they are a hundredth of the space."""
    own = dict(setting.request.overrides)
    lean: dict[str, Sequence[object]] = {"mbs": [1], "placement": [0]}
    if "full" in setting.context.framework.legality.recompute:
        lean["recompute"] = ["full"]
    if not {"vpp", "schedule"} & set(own) and "1f1b" in setting.context.framework.legality.schedules:
        lean |= {"vpp": [1], "schedule": ["1f1b"]}
    return lean | own


def _fastest(found: list[Remedy | None]) -> list[Remedy]:
    present = [remedy for remedy in found if remedy is not None]
    return sorted(present, key=lambda remedy: remedy.row.step_time_s)[:1]


def _with_request(setting: Setting, **changes: Any) -> Setting:
    return dataclasses.replace(setting, request=dataclasses.replace(setting.request, **changes))


def _try(change: str, setting: Setting, score: Scorer) -> Remedy | None:
    """Search the candidates of a changed setting that need least memory.

    None where nothing is feasible or the change contradicts something.
    """
    try:
        row = best_row(setting, overrides=_lean(setting), score=score)
    except ForerunError:
        return None
    return None if row is None else Remedy(change=change, row=row)
