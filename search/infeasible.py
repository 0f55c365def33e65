"""When nothing is feasible: what blocks, how close the closest candidate comes, and which change would help.

No remedy is guessed: every change that is named was searched, and something feasible was found.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forerun.search.candidates import strategy_at
from forerun.search.exhaustive import Piece, Problem, Scorer, search_space
from forerun.search.request import Setting
from forerun.search.rows import Row, rows_of
from forerun.spaces.errors import ForerunError, InfeasibleError
from forerun.spaces.frameworks import framework_names, load_framework

GROWTHS = (2, 4, 8, 16, 32, 64)
"""Factors on the device count that are tried in turn; between the last that fails and the first that fits, more are."""
WIDEST_REMEDY = 1 << 25
"""Candidates of the largest space that a remedy is searched in: such a search takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change to the request in words, and the best strategy it makes feasible."""

    change: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """``blockers``: candidates by reason, most first. ``closest``: the legal candidate that misses by least memory.
    ``remedies``: changes that were searched and found to help, the smallest first."""

    legal: int
    blockers: tuple[tuple[str, int], ...]
    closest: Row | None
    remedies: tuple[Remedy, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as plain data."""
        return {
            "blockers": [{"reason": reason, "candidates": count} for reason, count in self.blockers],
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
        counts = ", ".join(f"{reason} {count:,}" for reason, count in self.blockers[:3])
        lines.append(f"top blockers (candidates): {counts}")
        if self.closest is not None:
            row = self.closest
            largest = max(row.memory_gib, key=lambda part: row.memory_gib[part])
            lines.append(
                f"closest: {row.strategy} needs {row.excess_gib:.1f} GiB less than its {row.peak_memory_gib:.1f} GiB "
                f"to fit into {row.memory_limit_gib:.1f} GiB; largest part: {largest} {row.memory_gib[largest]:.1f} GiB"
            )
        if self.remedies:
            lines.append("smallest change that makes it feasible:")
            lines += [
                f"  {remedy.change}: {remedy.row.strategy}, {remedy.row.peak_memory_gib:.1f} GiB, "
                f"{remedy.row.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
                for remedy in self.remedies
            ]
        else:
            lines.append("no single change that was searched (axes, framework, more GPUs, sequence length) helps")
        return "\n".join(lines)


class NothingFeasible(InfeasibleError):
    """A search found nothing feasible; ``diagnosis`` says why, ``document`` is the answer as JSON."""

    def __init__(self, diagnosis: Diagnosis, document: dict[str, Any]) -> None:
        super().__init__(diagnosis.text())
        self.diagnosis = diagnosis
        self.document = {**document, "infeasible": diagnosis.to_json()}


def diagnose(setting: Setting, problem: Problem, piece: Piece, score: Scorer) -> Diagnosis:
    """Return why ``piece``, the whole of a space, has nothing feasible and what would help."""
    closest = None
    if piece.closest is not None and len(piece.closest):
        strategy = strategy_at(problem.space, int(piece.closest.index[0]))
        closest = rows_of(setting.context, [strategy], usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)[0]
    blockers = sorted(piece.rejected.items(), key=lambda item: (-item[1], item[0]))
    return Diagnosis(
        legal=piece.legal,
        # Memory is what legal candidates die of, so it is named before the laws, whatever the counts.
        blockers=tuple(sorted(blockers, key=lambda item: item[0] != "memory")),
        closest=closest,
        remedies=tuple(_remedies(setting, score)),
    )


def _remedies(setting: Setting, score: Scorer) -> Iterator[Remedy]:
    """Yield changes that help: fewer restrictions first, then another framework, more devices, shorter sequences."""
    relaxed = [remedy for remedy in map(lambda change: _try(*change, score), _relaxed(setting)) if remedy is not None]
    yield from relaxed[:3]
    if relaxed:
        return
    yield from _fastest([_try(*change, score) for change in _other_frameworks(setting)])
    yield from filter(None, [_more_devices(setting, score)])
    yield from filter(None, [_shorter_sequence(setting, score)])


def _relaxed(setting: Setting) -> list[tuple[str, Setting]]:
    """Return the setting without each of the user's restrictions, then without any."""
    own = setting.request.overrides
    changes = [(f"do not restrict {axis}", {a: v for a, v in own.items() if a != axis}) for axis in own]
    changes += [("restrict no axis", {})] if len(own) > 1 else []
    return [(words, _with_request(setting, overrides=rest)) for words, rest in changes]


def _other_frameworks(setting: Setting) -> Iterator[tuple[str, Setting]]:
    present = setting.context.framework.name
    for name in framework_names():
        # "generic" can express everything and runs nowhere.
        if name not in (present, "generic"):
            context = dataclasses.replace(setting.context, framework=load_framework(name))
            yield f"--framework {name}", dataclasses.replace(setting, context=context)


def _more_devices(setting: Setting, score: Scorer) -> Remedy | None:
    """Double until something fits, then look for fewer devices between that and the last that failed."""
    cluster, largest = setting.context.cluster, max(setting.gpus or (1,))
    failed = largest
    for factor in GROWTHS:
        count = largest * factor
        if count > cluster.max_devices:
            return None
        found = _try_devices(setting, count, largest, score)
        if found is None:
            failed = count
            continue
        step = max(1, (count - failed) // 8)
        step = -(-step // cluster.devices_per_node) * cluster.devices_per_node
        fewer = (_try_devices(setting, n, largest, score) for n in range(failed + step, count, step))
        return next(filter(None, fewer), found)
    return None


def _try_devices(setting: Setting, count: int, present: int, score: Scorer) -> Remedy | None:
    return _try(f"{count - present} more GPUs ({count})", dataclasses.replace(setting, gpus=(count,)), score)


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


def _fastest(found: list[Remedy | None]) -> list[Remedy]:
    present = [remedy for remedy in found if remedy is not None]
    return sorted(present, key=lambda remedy: remedy.row.step_time_s)[:1]


def _with_request(setting: Setting, **changes: Any) -> Setting:
    return dataclasses.replace(setting, request=dataclasses.replace(setting.request, **changes))


def _try(change: str, setting: Setting, score: Scorer) -> Remedy | None:
    """Search a changed setting; None where nothing is feasible or the change contradicts something."""
    try:
        space = setting.space()
        if space.size > WIDEST_REMEDY:
            return None
        piece = search_space(Problem(space=space, objective=setting.objective, top=1), score=score)
    except ForerunError:
        return None
    if piece.best is None or not len(piece.best):
        return None
    strategy = strategy_at(space, int(piece.best.index[0]))
    row = rows_of(setting.context, [strategy], usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)[0]
    return Remedy(change=change, row=row)
