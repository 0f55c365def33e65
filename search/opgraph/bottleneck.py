"""What holds a split up, in the classes that ParaDL (arXiv 2104.09075, table 6) sorts limits into.

Each class has seconds of the step where time is what it costs, or a share of memory or of devices. ``inference`` says
whether the class would also hold up inference, which has no gradients and no update.
"""

from dataclasses import dataclass

from forerun.search.opgraph.rows import GraphRow
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.opgraph.limits import split_limits
from forerun.spaces.opgraph.split import Mode

NEARLY_FULL = 0.9
"""Share of the memory above which fragmentation may stop a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """One class: ``seconds`` of a step it takes, or None where it is not time; ``words`` say what it is here."""

    name: str
    seconds: float | None
    words: str
    inference: bool


def bottlenecks(context: GraphContext, row: GraphRow) -> tuple[Bottleneck, ...]:
    """Return the classes that apply, the costliest in time first, then those that bound memory or devices."""
    timed = sorted(_timed(context, row), key=lambda one: -(one.seconds or 0.0))
    return (*timed, *_bounds(context, row))


def _timed(context: GraphContext, row: GraphRow) -> list[Bottleneck]:
    parts, phases, split = row.split.parts, row.breakdown_s, row.split
    busy = phases["forward"] + phases["backward"]
    share = 1.0 - 1.0 / parts
    redundant = row.repeated_s * share
    useful = max(busy - redundant - row.idle_s - row.host_s, 0.0)
    staged = context.profile.staged_bytes_per_s is not None
    rows: list[tuple[str, float, str, bool]] = [
        ("computation", useful, "work that the split divides evenly", True),
        ("redundant compute", redundant, f"work that {parts} devices repeat", True),
        _idle(row),
        ("host", row.host_s, "issuing kernels takes longer than running them", True),
        ("gradient exchange", phases["gradient"], "gradients that the backward pass does not hide", False),
        ("stragglers", phases["straggle"], "all devices wait for the slowest", False),
        ("layer-wise collectives", phases["collective"] + phases["tail"], _collective_words(split.mode), True),
        ("point-to-point", phases["halo"] + phases["hop"], "staged through the host" if staged else "neighbours", True),
        ("load balance", phases["bubble"], "stages that wait while the pipeline fills and drains", True),
        ("weight update", phases["update"], "the optimizer", False),
        ("input and staging", phases["input"], "loading samples takes longer than the rest of the step", True),
    ]
    return [
        Bottleneck(name=name, seconds=seconds, words=words, inference=also)
        for name, seconds, words, also in rows
        if seconds > 0
    ]


def _idle(row: GraphRow) -> tuple[str, float, str, bool]:
    """What is lost where work is not even: by whole tables, or by kernels that are too small to get faster."""
    if row.split.spread:
        return "load balance", row.idle_s, "devices that hold tables look rows up for all others", True
    return "small kernels", row.idle_s, f"kernels that do not shrink to one part of {row.split.parts}", True


def _collective_words(mode: Mode) -> str:
    words = {
        Mode.FILTER: "outputs gathered, input gradients added up",
        Mode.CHANNEL: "outputs added up, input gradients gathered",
        Mode.SPATIAL: "the parts of the picture brought together for the tail",
    }
    return words.get(mode, "features exchanged between devices")


def _bounds(context: GraphContext, row: GraphRow) -> list[Bottleneck]:
    found = []
    full = row.peak_memory_gib / row.memory_limit_gib
    held = sum(row.memory_gib[name] for name in ("parameters", "gradients", "optimizer"))
    if row.gpus > 1 and held > 0.2 * row.peak_memory_gib:
        words = f"{held:.1f} GiB of parameters and optimizer states that other devices hold too"
        found.append(Bottleneck(name="memory redundancy", seconds=None, words=words, inference=True))
    if full > NEARLY_FULL:
        words = f"{full:.0%} of the usable memory: fragmentation may stop the run"
        found.append(Bottleneck(name="fragmentation", seconds=None, words=words, inference=False))
    most, law = largest_parts(context, row)
    if most is not None and row.split.parts * 2 > most:
        words = f"{row.split.mode.name.lower()} goes no further than {most}: {law}"
        found.append(Bottleneck(name="maximum devices", seconds=None, words=words, inference=True))
    return found


def largest_parts(context: GraphContext, row: GraphRow) -> tuple[int | None, str]:
    """Return the most parts (data: replicas) that the mode of ``row`` allows, and the law that says so."""
    limits, split = split_limits(context.model), row.split
    if split.mode is Mode.FILTER:
        return limits.filters, f"{limits.filters_at} has {limits.filters} filters"
    if split.mode is Mode.CHANNEL:
        return limits.channels, f"{limits.channels_at} has {limits.channels} input channels"
    if split.mode is Mode.PIPELINE:
        return limits.weighted, f"the model has {limits.weighted} layers with weights"
    return None, ""
