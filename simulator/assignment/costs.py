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
    """The part of ``backward_s`` that may run later."""
    parts: Mapping[str, float]
    """Seconds forward and backward together, by kind."""
    kept_bytes: float = 0.0
    """Bytes kept from forward pass to weight gradient."""
    logit_bytes: float = 0.0
    """Bytes kept from forward pass to input gradient."""
    working_bytes: float = 0.0
    """Bytes allocated while the input gradient runs."""
    host_bytes: float = 0.0
    """Part of ``kept_bytes`` copied to host memory in the forward pass and back in the backward pass."""
    host_parts: int = 1
    """Number of these copies."""
    fetch_bytes: float = 0.0
    """Bytes of parameters copied from the host before each pass."""
    fetches: int = 1
    """Number of these copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Work of a pipeline rank once per step."""

    reduce_s: float = 0.0
    """Seconds of one reduction of all its gradients."""
    gather_s: float = 0.0
    """Seconds of one gather of all its parameters."""
    optimizer_s: float = 0.0
    buckets: int = 1
    """Number of collectives in one reduction or gather."""
    share: Mapping[int, float]
    """Share (0 to 1) of each of its virtual stages in both."""
    fixed_bytes: float = 0.0
    """Bytes of parameters, gradients, optimizer states and buffers."""
    zero: int | None = None
    """ZeRO stage that determines when the traffic takes place (None: the step's)."""
    also: tuple["StageCost", ...] = ()
    """Traffic of layers with another sharding."""


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
    """Seconds of one transfer between stages."""
    each_p2p_s: tuple[tuple[float, float], ...] = ()
    """Seconds (forward, backward) from each virtual stage to the next, where they differ; empty: ``p2p_s``."""
    overlap_p2p: bool = True
    """Transfers do not block the sender."""
    one_port: bool = False
    """Transfers and replica traffic leave a device by one port, which they share."""
    tied_s: float = 0.0
    """Seconds of the all-reduce of a tied table."""
    zero: int = 0
    """ZeRO stage."""
    reduced_each_from: int = 2
    """ZeRO stage from which gradients are reduced before the last microbatch."""
    reduced_every: int = 1
    """Microbatches between two reductions of gradients."""
    stays_whole: bool = False
    """Parameters gathered for a backward pass are dropped after the next forward pass of their virtual stage."""
    overlap_gradients: float = 0.0
    """Share (0 to 1) of gradient traffic that computation may hide."""
    overlap_parameters: float = 0.0
    """Share (0 to 1) of parameter traffic that computation may hide."""
    overlap_slowdown: float = 1.0
    """Factor on passes during replica traffic."""
    traffic_slowdown: float = 1.0
    """Factor on replica traffic during passes."""
    host_step_s: float = 0.0
    """Host time of a step in addition to launches."""
    host_microbatch_s: float = 0.0
    """Host time of a microbatch in addition to launches."""
    in_flight: tuple[int, ...] = ()
    """Limit of in-flight microbatches of each pipeline rank (empty: by the schedule)."""
    host_bytes_per_s: float = 0.0
    """Rate between a device and the host, one direction."""
    gathers_near: bool = False
    """Gathers of parameters use separate links, whatever ``one_port`` is."""
    orders: Programs = ()
    """Program of every pipeline rank given by the user (empty: by the schedule)."""

    @property
    def programs(self) -> Programs:
        """The program of every pipeline rank.

        Raises
        ------
        RequestError
            The schedule has no order for the shape.
        """
        if self.orders:
            return self.orders
        return limited(self.shape, self.in_flight) if self.in_flight else programs_of(self.schedule, self.shape)

    def p2p_from(self, chunk: int, *, back: bool) -> float:
        """Return the seconds from a virtual stage to the next, or (``back``) to the preceding one."""
        return self.each_p2p_s[chunk - back][back] if self.each_p2p_s else self.p2p_s
