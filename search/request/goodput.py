"""Failures and checkpoints as a user states them, and the goodput of a training on every number of GPUs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forerun.simulator.goodput import Goodput, Reliability, goodput_of
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.models.parameters import parameter_count
from forerun.spaces.strategies import Context
from forerun.spaces.units import format_rate, format_seconds, parse_count, parse_rate, parse_seconds, with_unit

_READERS: Mapping[str, tuple[str, Callable[[str], float]]] = {
    "failures": ("failures_per_device_hour", parse_count),
    "planned": ("planned_per_device_hour", parse_count),
    "recovery": ("recovery_s", lambda text: with_unit(parse_seconds, text)),
    "interval": ("interval_s", lambda text: with_unit(parse_seconds, text)),
    "storage": ("checkpoint_bytes_per_s", parse_rate),
    "spares": ("spare_nodes", lambda text: int(parse_count(text))),
    "repair": ("repair_s", lambda text: with_unit(parse_seconds, text)),
    "hardware": ("hardware_share", float),
}
"""Name of a fact -> field of ``Reliability`` and reader of its text."""
WEIGHT_BYTES = 2.0
"""Bytes of a half-precision weight in a checkpoint, besides optimizer states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Interrupted trainings of one context, on any number of GPUs."""

    reliability: Reliability
    context: Context

    @property
    def checkpoint_bytes(self) -> float:
        """Weights and optimizer states of the whole model, as written to a checkpoint."""
        profile = self.context.framework
        half = self.context.workload.precision not in ("fp32", "tf32")
        states = profile.optimizer_bytes + (profile.master_bytes if half else 0.0)
        weight = WEIGHT_BYTES if half else 2 * WEIGHT_BYTES
        return parameter_count(self.context.model) * (weight + states)

    def on(self, gpus: int, *, step_s: float = 0.0) -> Goodput:
        """Return the goodput of a training on ``gpus`` GPUs with steps of ``step_s`` seconds.

        Raises
        ------
        RequestError
            Failures are so frequent that the training makes no progress.
        """
        return goodput_of(
            self.reliability,
            devices=gpus,
            devices_per_node=self.context.cluster.devices_per_node,
            checkpoint_bytes=self.checkpoint_bytes,
            step_s=step_s,
        )


def read_reliability(text: str) -> Reliability:
    """Read facts of a user: ``failures=2e-5,recovery=10min,storage=1GB/s``; the empty text has defaults.

    >>> read_reliability("interval=30min").interval_s
    1800.0

    Raises
    ------
    RequestError
        A fact is unknown, given twice, or out of bounds.
    """
    facts: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if name not in _READERS:
            raise unknown("fact of --goodput", name, _READERS)
        field, read = _READERS[name]
        if not equals or field in facts:
            raise RequestError(f"--goodput takes FACT=VALUE once each, like recovery=10min, but got {part!r}")
        try:
            facts[field] = read(value)
        except ValueError:
            raise RequestError(f"--goodput {name} must be a number, but got {value!r}") from None
    return Reliability(**facts)  # type: ignore[arg-type]  # spare_nodes is read as a whole number


def assumed(reliability: Reliability) -> str:
    """Describe the assumptions on failures and checkpoints."""
    spares = "" if reliability.spare_nodes is None else f", {reliability.spare_nodes} spare nodes"
    every = "best interval" if reliability.interval_s is None else f"every {format_seconds(reliability.interval_s)}"
    storage = format_rate(reliability.checkpoint_bytes_per_s)
    return (
        f"goodput: {reliability.failures_per_device_hour:.3g} failures per GPU-hour, recovery "
        f"{format_seconds(reliability.recovery_s)}, checkpoints at {storage} per node, "
        f"{every}{spares}"
    )
