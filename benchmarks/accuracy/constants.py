"""Constants of the simulator that were chosen by looking at whole training runs, and how to vary each of them.

Everything else comes from micro-benchmarks (``benchmarks/fit``), data sheets or the definition of an operator. A
constant is varied by a factor on the value it has, so that profiles which differ in it keep their ratio.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from forerun.search.measured.validate import MeasuredRun
from forerun.simulator.costs import attention, gemm, slowest
from forerun.simulator.costs.collectives import rule
from forerun.simulator.costs.collectives.constants import LinkConstants, Table, constants_of, table
from forerun.simulator.costs.efficiency import ComputeEfficiency, device_efficiency
from forerun.simulator.layer import known_times
from forerun.spaces.clusters.cluster import Level
from forerun.spaces.clusters.device import Device
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import Context

LARGEST_FACTOR = 10.0
"""A refit may move a constant this far up or down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """``name``: a field of ``FrameworkProfile``, a number of a cost rule (in capitals), a sustained clock as ``clock
    DEVICE WIDTH`` (DEVICE: start of the device's name), the speed of its hosts as ``host DEVICE``, the rate of a kind
    of link as ``link KIND``, or how long messages on a link take to flow as ``start KEY``. ``where`` it stands;
    ``seen``: the runs it was chosen by; ``share``: it cannot pass 1."""

    name: str
    where: str
    seen: str
    share: bool = False

    @property
    def kind(self) -> str:
        """What has to be varied: "profile", "clock", "host", "link", "start" or a number of a cost rule ("rule")."""
        first, space, _ = self.name.partition(" ")
        if space:
            return first
        return "rule" if self.name.lstrip("_").isupper() else "profile"

    @property
    def rule(self) -> ModuleType:
        """The cost rule that a number belongs to."""
        return next((rule for rule in (gemm, slowest) if hasattr(rule, self.name)), attention)

    @property
    def exists(self) -> bool:
        """Whether the simulator still has a constant of this name."""
        if self.kind == "profile":
            return self.name in {field.name for field in fields(FrameworkProfile)}
        return self.kind in ("clock", "host", "link", "start") or hasattr(self.rule, self.name)

    def value(self, run: MeasuredRun) -> float:
        """Return what the constant is for a run."""
        if self.kind == "profile":
            return float(getattr(run.context.framework, self.name))
        if self.kind == "rule":
            return float(getattr(self.rule, self.name))
        cluster = run.context.cluster
        if self.kind == "host":
            return cluster.device.host_speed if self.belongs_to(cluster.device) else 0.0
        if self.kind == "start":
            return table().links[self.name.split()[1]].base_s[-1]
        if self.kind == "link":
            return max((one.bytes_per_s for one in cluster.levels if one.kind == self.name.split()[1]), default=0.0)
        return float(device_efficiency(cluster.device).sustained_clock.get(self.name.split()[2], 0.0))

    def belongs_to(self, device: Device) -> bool:
        """Whether a clock or host of this name is that of ``device``."""
        return device.name.startswith(tuple(self.name.split()[1].split("|")))

    def limits(self, value: float) -> tuple[float, float]:
        """Return the least and largest factor on ``value``."""
        return 1.0 / LARGEST_FACTOR, 1.0 / value if self.share else LARGEST_FACTOR


Factors = Mapping[Constant, float]


def varied(context: Context, factors: Factors) -> Context:
    """Return a context with the constants of its profile, hosts and links multiplied."""
    profile, cluster = context.framework, context.cluster
    own = {c.name: getattr(profile, c.name) * factor for c, factor in factors.items() if c.kind == "profile"}
    for constant, factor in factors.items():
        if constant.kind == "host" and constant.belongs_to(cluster.device):
            device = replace(cluster.device, host_speed=cluster.device.host_speed * factor)
            cluster = replace(cluster, device=device)
        elif constant.kind == "link":
            kind = constant.name.split()[1]
            cluster = replace(cluster, levels=tuple(_faster(one, kind, factor) for one in cluster.levels))
    return replace(context, framework=replace(profile, **own), cluster=cluster)


def _faster(level: Level, kind: str, factor: float) -> Level:
    if level.kind != kind:
        return level
    return replace(level, bytes_per_s=level.bytes_per_s * factor, port_bytes_per_s=level.port_bytes_per_s * factor)


@contextmanager
def patched(factors: Factors) -> Iterator[None]:
    """Multiply the constants that belong to no profile, for a while."""
    clocks = {c: factor for c, factor in factors.items() if c.kind == "clock"}
    with ExitStack() as stack:
        for constant, factor in factors.items():
            if constant.kind == "rule":
                value = getattr(constant.rule, constant.name) * factor
                stack.enter_context(patch.object(constant.rule, constant.name, value))
        starts = {c.name.split()[1]: factor for c, factor in factors.items() if c.kind == "start"}
        if starts:
            stack.enter_context(patch.object(rule, "constants_of", _started(starts)))
        if clocks:
            for module in (attention, gemm):
                stack.enter_context(patch.object(module, "device_efficiency", _clocked(clocks)))
        # Times of blocks are remembered by request, whose objects stay the same.
        known_times.forget()
        stack.callback(known_times.forget)
        yield


def _started(factors: Mapping[str, float]) -> Any:
    """Return ``constants_of`` with the start of long messages multiplied on some links."""

    def constants(level: Level, architecture: str, known: Table | None = None) -> LinkConstants:
        row = constants_of(level, architecture, known)
        return replace(row, base_s=(*row.base_s[:-1], row.base_s[-1] * factors.get(row.key, 1.0)))

    return constants


def _clocked(factors: Factors) -> Any:
    """Return ``device_efficiency`` with some clocks multiplied."""

    known: dict[str, ComputeEfficiency] = {}

    def efficiency(device: Device) -> ComputeEfficiency:
        if device.name not in known:
            known[device.name] = changed(device)
        return known[device.name]

    def changed(device: Device) -> ComputeEfficiency:
        found = device_efficiency(device)
        clock = dict(found.sustained_clock)
        for constant, factor in factors.items():
            width = constant.name.split()[2]
            if constant.belongs_to(device) and width in clock:
                clock[width] *= factor
        return replace(found, sustained_clock=clock)

    return efficiency


_NANOTRON = "spaces/frameworks/data/nanotron.yaml"
_PROFILE = "spaces/frameworks/profile.py"
_FACTS = "spaces/frameworks/data/scaling.yaml"
_CLOCKS = "benchmarks/fit/compute.py"
_SWEEP = "hf_ultrascale"

NANOTRON = (
    Constant(name="host_layer_s", where=_NANOTRON, seen=_SWEEP),
    Constant(name="pipeline_rank_s", where=_NANOTRON, seen=_SWEEP),
    Constant(name="tensor_step_s", where=_NANOTRON, seen=_SWEEP),
    Constant(name="p2p_fixed_s", where=_NANOTRON, seen=_SWEEP),
    Constant(name="host_step_s", where=_NANOTRON, seen=_SWEEP),
    Constant(name="step_bytes", where=_NANOTRON, seen=_SWEEP),
    Constant(name="overlap_gradients", where=_NANOTRON, seen=_SWEEP, share=True),
    Constant(name="allocator_stall", where=_NANOTRON, seen=_SWEEP),
)
LAUNCHES = (
    Constant(name="host_layer_s", where=_PROFILE, seen="mcore_functional_tests, hf_ultrascale"),
    Constant(name="host_microbatch_s", where=_PROFILE, seen="aleph_alpha_layouts, bigscience, llm_foundry"),
    Constant(name="collective_launch_s", where=_PROFILE, seen="aleph_alpha_layouts, hf_ultrascale, vtrain_multi"),
)
EXPERTS = (Constant(name="host_expert_s", where="data/switches/kernels.yaml", seen="runs with experts"),)
TRITON = (Constant(name="_TRITON_SHARE", where="simulator/costs/attention.py", seen="llm_foundry", share=True),)
TRITON_HOPPER = (
    Constant(name="_TRITON_HOPPER_SHARE", where="simulator/costs/attention.py", seen="llm_foundry", share=True),
)
HOPPER = (
    Constant(
        name="clock h100|h200|h800 half", where=_CLOCKS, seen="flagperf, llm_foundry, jeanzay_sft_fsdp", share=True
    ),
)
FLASH1 = (
    Constant(
        name="_FLASH1_SHARE", where="simulator/costs/attention.py", seen="aleph_alpha_layouts, flagperf", share=True
    ),
)
UNALIGNED = (Constant(name="_VECTOR_SHARE", where="simulator/costs/attention.py", seen="bigscience", share=True),)
REPLICAS = (
    Constant(name="WAIT_PER_DOUBLING", where="simulator/costs/slowest.py", seen="all tables with over 8 replicas"),
)
VOLTA = (Constant(name="clock v100 half", where=_CLOCKS, seen="dlperf_gpt, libai, bigscience", share=True),)
TURING = (
    Constant(name="clock t4 half", where=_CLOCKS, seen="amp", share=True),
    Constant(name="start pcie3-staged", where="simulator/costs/data/collectives.yaml", seen="amp"),
    Constant(name="link ethernet", where="spaces/clusters/description.py", seen="amp"),
)
COPIED = (Constant(name="link infiniband", where="spaces/clusters/description.py", seen="dlperf_gpt"),)
_DEVICES = "spaces/clusters/data/devices (host_speed)"
HOSTS = (
    Constant(name="host a100|a800", where=_DEVICES, seen="mcore_functional_tests"),
    Constant(name="host gb200|gb300", where=_DEVICES, seen="mcore_functional_tests"),
)
AMPERE = (Constant(name="clock a100 half", where=_CLOCKS, seen="all tables of A100", share=True),)
BLACKWELL = (
    Constant(name="clock b200|b300|gb200|gb300 fp8", where=_CLOCKS, seen="mlperf_llm, megatron_bridge", share=True),
)
FOUR_BIT = (Constant(name="FOUR_BIT_GAIN", where="simulator/costs/gemm.py", seen="mlperf_llm, megatron_bridge"),)
OWN_TRAINER = (
    Constant(name="logit_bytes", where=_FACTS, seen="aleph_alpha_layouts (out-of-memory labels)"),
    Constant(name="fragmentation", where=_FACTS, seen="aleph_alpha_layouts (out-of-memory labels)"),
)
NANOTRON_MEMORY = (
    Constant(name="logit_bytes", where=_NANOTRON, seen=_SWEEP),
    Constant(name="fragmentation", where=_NANOTRON, seen=_SWEEP),
    Constant(name="communicator_bytes", where=_NANOTRON, seen=_SWEEP),
    Constant(name="pipeline_idle", where=_NANOTRON, seen=_SWEEP),
)
DEEPSPEED_MEMORY = (
    Constant(name="fragmentation", where="spaces/frameworks/data/megatron-deepspeed.yaml", seen="bigscience (A100)"),
    Constant(
        name="communicator_bytes", where="spaces/frameworks/data/megatron-deepspeed.yaml", seen="bigscience (A100)"
    ),
)
