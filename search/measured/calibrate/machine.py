"""The machine of measured runs: a calibration is valid for one device and one framework."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forerun.search.measured.validate import MeasuredRun
from forerun.simulator.assignment.memory import cached_bytes
from forerun.simulator.calibration import FittedRun, MemoryRun
from forerun.simulator.calibration.constants import software_of
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Device, framework and links of a calibration. ``links``: kinds of links used by its runs, innermost first."""

    device: str
    framework: str
    links: tuple[str, ...]

    def check(self, context: Context | GraphContext, source: str) -> tuple[str, ...]:
        """Return notes on the use of a calibration of this machine for ``context``.

        Raises:
            RequestError: the context is on another device or framework, or on nodes that differ.
        """
        if context.cluster.groups:
            raise RequestError(
                f"{source} is a calibration of one device, but the nodes of {context.cluster.name} differ; "
                "name a cluster of equal nodes, or leave --calibration out"
            )
        asked = (context.cluster.device.name, software_of(context).name)
        if asked != (self.device, self.framework):
            raise RequestError(
                f"{source} was fitted to runs on {self.device} with {self.framework}, but this request is for "
                f"{asked[0]} with {asked[1]}; name that device and framework, or calibrate with runs of this one"
            )
        others = sorted(set(kinds_of(context.cluster)) - set(self.links))
        if others:
            return (f"no run of {source} used {' or '.join(others)} links: their bandwidth is the catalogue's guess",)
        return ()


def kinds_of(cluster: Cluster) -> tuple[str, ...]:
    """Return the kinds of links of a cluster, innermost first, each once."""
    return tuple(dict.fromkeys(level.kind for level in cluster.levels))


def machine_of(runs: Sequence[MeasuredRun]) -> Machine:
    """Return the common machine of all runs.

    Raises:
        RequestError: there is no run, or there are several devices or frameworks.
    """
    if not runs:
        raise RequestError("no row can be used: calibration needs runs with outcome ok and a step time")
    machines = Counter((run.context.cluster.device.name, software_of(run.context).name) for run in runs)
    if len(machines) > 1:
        shown = "; ".join(f"{device} with {framework} ({n})" for (device, framework), n in machines.most_common(5))
        raise RequestError(
            f"a calibration is of one device and one framework, but the runs are on {shown}; "
            "choose with --where device=NAME or --where framework=NAME"
        )
    device, framework = next(iter(machines))
    links = dict.fromkeys(kind for run in runs for kind in kinds_of(run.context.cluster))
    return Machine(device=device, framework=framework, links=tuple(links))


def usable(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs with information about time."""
    return [run for run in runs if run.outcome == "ok" and run.step_time_s]


def told_of_memory(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs with information about memory (peak, or whether they ran); none if no run measured memory or
    failed. Runs of operator graphs are excluded, since their allocator overhead is not modelled.
    """
    with_memory = [run for run in runs if run.outcome in ("ok", "oom") and isinstance(run.context, Context)]
    return with_memory if any(run.peak_memory_bytes or run.outcome == "oom" for run in with_memory) else []


def memory_runs_of(runs: Sequence[MeasuredRun]) -> list[MemoryRun]:
    """Return runs in the form of the memory fit."""
    return [
        MemoryRun(
            context=run.context,
            strategy=run.strategy,
            peak_bytes=_needed_bytes(run) if run.outcome == "ok" else None,
            kind=run.memory_kind,
            fitted=run.outcome == "ok",
            of_first=run.memory_of_first,
        )
        for run in runs
    ]


def _needed_bytes(run: MeasuredRun) -> float | None:
    """Return a measured peak minus the predicted reserved overhead of its allocator; at least half of the peak."""
    if run.peak_memory_bytes is None or run.memory_kind != "reserved":
        return run.peak_memory_bytes
    return max(run.peak_memory_bytes - cached_bytes(run.context, run.strategy), run.peak_memory_bytes / 2)


def measured_of(runs: Sequence[MeasuredRun]) -> list[FittedRun]:
    """Return usable runs in the form of the fit."""
    return [
        FittedRun(context=run.context, strategy=run.strategy, step_time_s=run.step_time_s)
        for run in runs
        if run.step_time_s
    ]
