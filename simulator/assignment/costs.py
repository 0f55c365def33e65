"""Costs of one step as plain numbers, the input of the event graph of a transformer."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.spaces.schedules import PipelineShape, Programs, limited, programs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCost:
    """One microbatch on one virtual stage."""

    forward_s: float
    backward_s: float
    """Both gradients and the wait for the host."""
    weight_s: float
    """The part of it that may run later."""
    parts: Mapping[str, float]
    """Forward and backward together, by kind."""
    kept_bytes: float = 0.0
    """Held from forward pass to weight gradient."""
    logit_bytes: float = 0.0
    """Held from forward pass to input gradient."""
    working_bytes: float = 0.0
    """Held while the input gradient runs."""
    host_bytes: float = 0.0
    """What of ``kept_bytes`` goes to the host's memory in the forward pass and comes back in the backward one."""
    host_parts: int = 1
    """Copies that this takes."""
    fetch_bytes: float = 0.0
    """Parameters that come from the host before each of both passes."""
    fetches: int = 1
    """Copies that this takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Work of a pipeline rank once per step."""

    reduce_s: float = 0.0
    """One reduction of all its gradients."""
    gather_s: float = 0.0
    """One gather of all its parameters."""
    optimizer_s: float = 0.0
    buckets: int = 1
    """Collectives that each of both is."""
    share: Mapping[int, float]
    """The share (0 to 1) of both that is each of its virtual stages'."""
    fixed_bytes: float = 0.0
    """Parameters, gradients, optimizer states, buffers."""
    zero: int | None = None
    """Stage of sharding that decides when the traffic takes place (None: that of the step)."""
    also: tuple["StageCost", ...] = ()
    """Traffic of layers that are sharded otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """All input for the compilation of one step of one pipeline."""

    schedule: int
    """Number of a ``Schedule``."""
    shape: PipelineShape
    chunks: tuple[ChunkCost, ...]
    """Virtual stages in model order, C."""
    stages: tuple[StageCost, ...]
    """Pipeline ranks, P."""
    p2p_s: float = 0.0
    """One transfer between stages."""
    each_p2p_s: tuple[tuple[float, float], ...] = ()
    """(forward, backward) from each virtual stage to the next, where they differ; empty: ``p2p_s``."""
    overlap_p2p: bool = True
    """Transfers do not block the sender."""
    one_port: bool = False
    """Transfers and the traffic of replicas leave a device by one port, which they share while both are under way."""
    tied_s: float = 0.0
    """All-reduce of a tied table."""
    zero: int = 0
    """Stage of sharding."""
    reduced_each_from: int = 2
    """Stage of sharding from which gradients are reduced before the last microbatch."""
    reduced_every: int = 1
    """Microbatches from one reduction of gradients to the next."""
    stays_whole: bool = False
    """Parameters gathered for a backward pass are dropped behind the next forward pass of their virtual stage."""
    overlap_gradients: float = 0.0
    """Share (0 to 1) of the traffic of gradients that may run under computation."""
    overlap_parameters: float = 0.0
    """That of parameters."""
    overlap_slowdown: float = 1.0
    """Factor on passes beside traffic of replicas."""
    traffic_slowdown: float = 1.0
    """Factor on that traffic beside passes."""
    host_step_s: float = 0.0
    """Host's work of a step beside its launches."""
    host_microbatch_s: float = 0.0
    """That of a microbatch."""
    in_flight: tuple[int, ...] = ()
    """Most microbatches whose activations each pipeline rank keeps (empty: by the schedule)."""
    host_bytes_per_s: float = 0.0
    """Between a device and the host, one direction."""
    gathers_near: bool = False
    """Gathers of parameters use links of their own, whatever ``one_port`` says."""
    orders: Programs = ()
    """Program of every pipeline rank, where the user wrote it (empty: by the schedule)."""

    @property
    def programs(self) -> Programs:
        """The program of every pipeline rank.

        Raises:
            RequestError: the schedule has no order for the shape.
        """
        if self.orders:
            return self.orders
        return limited(self.shape, self.in_flight) if self.in_flight else programs_of(self.schedule, self.shape)

    def p2p_from(self, chunk: int, *, back: bool) -> float:
        """Return the seconds from a virtual stage to the next, or (``back``) to the preceding one."""
        return self.each_p2p_s[chunk - back][back] if self.each_p2p_s else self.p2p_s
