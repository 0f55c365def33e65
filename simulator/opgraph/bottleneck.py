"""Bottlenecks of a split, in the classes of ParaDL (arXiv 2104.09075, table 6).

Each class has seconds of the step where it costs time, otherwise a share of memory or devices. ``inference``: whether
the class also limits inference, which has no gradients and no update.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.score import SplitScores, score_splits
from forerun.simulator.opgraph.table import AnySplit, SplitTable
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.opgraph.limits import split_limits
from forerun.spaces.opgraph.mixture import Mixture
from forerun.spaces.opgraph.split import NORM_HANDLING, Mode, Split

NEARLY_FULL = 0.9
"""Share of the memory above which fragmentation may stop a run."""
MIXED_NORMS = "batch normalisation of each layer as its own split says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """One class: its ``seconds`` of a step (None where it does not cost time) and its description in ``words``."""

    name: str
    seconds: float | None
    words: str
    inference: bool

    def to_json(self) -> dict[str, Any]:
        """Return the class as plain data."""
        return {
            "class": self.name,
            "seconds": self.seconds,
            "words": self.words,
            "also_inference": self.inference,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """Facts about a row of an operator graph in addition to its costs.

    ``hidden_s``: gradient exchange hidden by the backward pass; ``repeated_s``: device seconds of work that all parts
    of a replica repeat; ``idle_s``: time lost to kernels that do not shrink with the parts; ``host_s``: extra time of
    waits for the host. ``bottlenecks``: the most expensive in time first, followed by limits of memory or devices.
    """

    global_batch: int
    family: str
    batch_norm: str
    hidden_s: float = 0.0
    repeated_s: float = 0.0
    idle_s: float = 0.0
    host_s: float = 0.0
    bottlenecks: tuple[Bottleneck, ...] = field(default=())

    @property
    def bottleneck(self) -> str:
        """Name of the worst bottleneck; empty where it is unknown (the step was simulated)."""
        return self.bottlenecks[0].name if self.bottlenecks else ""

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        known = {"bottleneck": self.bottleneck, "hidden_gradient_s": self.hidden_s} if self.bottlenecks else {}
        return {"family": self.family, "global_batch": self.global_batch, **known, "batch_norm": self.batch_norm}


def facts_of(context: GraphContext, table: SplitTable, scores: ScoreTable) -> list[SplitFacts]:
    """Return the facts of every row of a scored table; simulated steps (no ``SplitScores``) have no bottlenecks."""
    if not isinstance(scores, SplitScores):
        return [_facts(split, int(batch)) for split, batch in zip(table.splits, table.batch, strict=True)]
    # Seconds of one replica's batch on one device, in the same segments.
    keys = [(size // split.replicas, split.segments) for size, split in zip(table.batch, _defaults(table), strict=True)]
    local = sorted(set(keys))
    serial = score_splits(context, [Split(segments=segments) for _, segments in local], [batch for batch, _ in local])
    serial_s = dict(zip(local, map(float, serial.device_s), strict=True))
    rows = []
    for row, (split, key) in enumerate(zip(table.splits, keys, strict=True)):
        mixture = isinstance(split, Mixture)
        device_s, repeated_s = float(scores.device_s[row]), float(scores.repeated_s[row])
        ideal_s = (serial_s[key] - repeated_s) / _default(split).parts
        facts = replace(
            _facts(split, int(table.batch[row])),
            hidden_s=max(float(scores.hidden_s[row]), 0.0),
            repeated_s=repeated_s,
            idle_s=0.0 if mixture else max(device_s - repeated_s - ideal_s, 0.0),
            host_s=max(float(scores.host_s[row]) - device_s, 0.0),
        )
        cost = _Cost(split=_default(split), facts=facts, scores=scores, row=row)
        rows.append(replace(facts, bottlenecks=bottlenecks(context, cost)))
    return rows


def _facts(split: AnySplit, batch: int) -> SplitFacts:
    if isinstance(split, Mixture):
        return SplitFacts(global_batch=batch, family="mixture", batch_norm=MIXED_NORMS)
    return SplitFacts(global_batch=batch, family=split.family, batch_norm=NORM_HANDLING[split.mode])


def _default(split: AnySplit) -> Split:
    """Return a split; of a mixture, the split of most layers."""
    return split.default if isinstance(split, Mixture) else split


def _defaults(table: SplitTable) -> Sequence[Split]:
    return [_default(split) for split in table.splits]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """One row of some scores."""

    split: Split
    facts: SplitFacts
    scores: SplitScores
    row: int

    def seconds(self, *phases: str) -> float:
        return sum(float(self.scores.time_s[phase][self.row]) for phase in phases)

    def bytes(self, *parts: str) -> float:
        return sum(float(self.scores.memory_bytes[part][self.row]) for part in parts)


def bottlenecks(context: GraphContext, cost: _Cost) -> tuple[Bottleneck, ...]:
    """Return the classes that apply, the most expensive in time first, followed by limits of memory or devices."""
    timed = sorted(_timed(context, cost), key=lambda one: -(one.seconds or 0.0))
    return (*timed, *_bounds(context, cost))


def _timed(context: GraphContext, cost: _Cost) -> list[Bottleneck]:
    split, facts = cost.split, cost.facts
    parts = split.parts
    redundant = facts.repeated_s * (1.0 - 1.0 / parts)
    useful = max(cost.seconds("forward", "backward") - redundant - facts.idle_s - facts.host_s, 0.0)
    staged = context.profile.staged_bytes_per_s is not None
    rows: list[tuple[str, float, str, bool]] = [
        ("computation", useful, "work that the split divides evenly", True),
        ("redundant compute", redundant, f"work that {parts} devices repeat", True),
        _idle(cost),
        ("host", facts.host_s, "issuing kernels takes longer than running them", True),
        ("gradient exchange", cost.seconds("gradient"), "gradients that the backward pass does not hide", False),
        ("stragglers", cost.seconds("straggler wait"), "all devices wait for the slowest", False),
        ("layer-wise collectives", cost.seconds("collective", "tail"), _collective_words(split.mode), True),
        (
            "point-to-point",
            cost.seconds("halo", "p2p"),
            "staged through the host" if staged else "transfers between neighbours",
            True,
        ),
        ("load balance", cost.seconds("bubble"), "stages that wait while the pipeline fills and drains", True),
        ("weight update", cost.seconds("update"), "the optimizer", False),
        ("input and staging", cost.seconds("input"), "loading samples takes longer than the rest of the step", True),
    ]
    return [
        Bottleneck(name=name, seconds=seconds, words=words, inference=also)
        for name, seconds, words, also in rows
        if seconds > 0
    ]


def _idle(cost: _Cost) -> tuple[str, float, str, bool]:
    """Time lost to uneven work: of whole tables, or of kernels too small to become faster."""
    if cost.split.spread:
        return "load balance", cost.facts.idle_s, "devices with tables look up rows for all others", True
    part = f"1/{cost.split.parts}"
    return (
        "small kernels",
        cost.facts.idle_s,
        f"{part} of the work takes kernels more than {part} of the time",
        True,
    )


def _collective_words(mode: Mode) -> str:
    words = {
        Mode.FILTER: "outputs gathered, input gradients added up",
        Mode.CHANNEL: "outputs added up, input gradients gathered",
        Mode.SPATIAL: "the parts of the picture brought together for the tail",
    }
    return words.get(mode, "features exchanged between devices")


def _bounds(context: GraphContext, cost: _Cost) -> list[Bottleneck]:
    limits = []
    peak_bytes = float(cost.scores.peak_memory_bytes[cost.row])
    full = peak_bytes / context.memory_limit_bytes
    held_bytes = cost.bytes("parameters", "gradients", "optimizer")
    if cost.split.devices > 1 and held_bytes > 0.2 * peak_bytes:
        words = f"{held_bytes / 2**30:.1f} GiB of parameters and optimizer states that other devices store too"
        limits.append(Bottleneck(name="memory redundancy", seconds=None, words=words, inference=True))
    if NEARLY_FULL < full <= 1.0:
        words = f"{full:.0%} of the usable memory: fragmentation may stop the run"
        limits.append(Bottleneck(name="fragmentation", seconds=None, words=words, inference=False))
    most, law = _largest_parts(context, cost.split)
    if most is not None and cost.split.parts * 2 > most:
        words = f"{cost.split.mode.name.lower()} scales to {most} at most: {law}"
        limits.append(Bottleneck(name="maximum devices", seconds=None, words=words, inference=True))
    return limits


def _largest_parts(context: GraphContext, split: Split) -> tuple[int | None, str]:
    """Return the largest number of parts under a split's mode, and the law that limits it; None where no law does."""
    limits = split_limits(context.model)
    if split.mode is Mode.FILTER:
        return limits.filters, f"{limits.filters_at} has {limits.filters} filters"
    if split.mode is Mode.CHANNEL:
        return limits.channels, f"{limits.channels_at} has {limits.channels} input channels"
    if split.mode is Mode.PIPELINE:
        return limits.weighted, f"the model has {limits.weighted} layers with weights"
    return None, ""
