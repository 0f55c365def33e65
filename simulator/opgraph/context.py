"""The context of a split's score: model, cluster, framework and workload, with its input and the host's pace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from forerun.simulator.costs import passes_time_s
from forerun.simulator.opgraph.compute import Local, OperatorCosts, OperatorTimes, activation_bytes
from forerun.simulator.opgraph.layers import Floats, Layers, layers_of
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.opgraph import GraphModel, Kind, Operator
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.profile import GraphProfile

PROFILED_BATCH = 64
"""Samples of the one-device run behind a measured time per sample, unless given."""
DEFAULT_BATCH = PerDevice(PROFILED_BATCH)

GRADIENT_BYTES = 4.0
"""Gradients are sent in fp32, also with half-precision arithmetic (automatic mixed precision keeps fp32 parameters)."""

USABLE = 0.96
"""Share of a device's memory that an allocator can fill despite fragmentation."""


_MOST_CASES = 4096
"""Limit of cached local shapes of a model, a few kilobytes each."""


class SplitCorrection(Protocol):
    """Correction of predictions by measured runs, in addition to a context's constants (``simulator.calibration``)."""

    def factor(self, context: "GraphContext", table: Any, time_s: Mapping[str, Floats]) -> Floats:
        """Return a factor on the step of every row of a table of splits, given the parts of its predicted time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphContext:
    """One request for an operator graph without its split.

    ``seconds_per_sample``: measured forward and backward pass on one device, which scales all operators (None: by the
    cost rules). ``global_batch``: samples of a step, or of each device. ``memory_share``: share of device memory up to
    which a split fits. ``inference``: forward passes only, without stored activations, exchange or update.
    ``correction``: None unless the context was calibrated to measured runs.
    """

    model: GraphModel
    cluster: Cluster
    profile: GraphProfile
    precision: str
    seconds_per_sample: float | None = None
    global_batch: int | PerDevice = DEFAULT_BATCH
    memory_share: float = USABLE
    inference: bool = False
    correction: SplitCorrection | None = None
    known_times: dict[bytes, Floats] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Cached times [3, U] by local shape; a changed copy starts with none."""

    def batch(self, devices: int) -> int:
        """Return the global batch on a number of devices."""
        asked = self.global_batch
        return asked.samples * devices if isinstance(asked, PerDevice) else asked

    @property
    def memory_limit_bytes(self) -> float:
        """Bytes of one device that a split may use."""
        return self.memory_share * self.cluster.device.memory_bytes

    @property
    def layers(self) -> Layers:
        """The model as arrays."""
        return layers_of(self.model.name, self.model)

    @property
    def width(self) -> float:
        """Bytes per element of an activation."""
        return activation_bytes(self.precision)

    def times(self, local: Local) -> OperatorTimes:
        """Device seconds of the distinct operators for K cases, scaled to the measurement."""
        times = self._scaled(self._by_rule(local))
        if not self.inference:
            return times
        nothing = np.zeros_like(times.forward_KU)
        return OperatorTimes(forward_KU=times.forward_KU, input_KU=nothing, weight_KU=nothing)

    def _scaled(self, times: OperatorTimes) -> OperatorTimes:
        if self.seconds_per_sample is None:
            return times
        one = self._by_rule(Local.whole(np.array([float(PROFILED_BATCH)])))
        counts = np.bincount(self.layers.kind_of_L, minlength=len(self.layers.distinct))
        predicted = float(((one.forward_KU + one.backward_KU)[0] * counts).sum())
        scale = self.seconds_per_sample * PROFILED_BATCH / predicted
        return OperatorTimes(
            forward_KU=times.forward_KU * scale, input_KU=times.input_KU * scale, weight_KU=times.weight_KU * scale
        )

    def _by_rule(self, local: Local) -> OperatorTimes:
        """Device seconds by the cost rules; every distinct case is costed once."""
        columns = (local.batch_K[:, None], local.grid_KA, local.filters_K[:, None], local.channels_K[:, None])
        cases, which = np.unique(np.hstack(columns), axis=0, return_inverse=True)
        known = self.known_times
        keys = [case.tobytes() for case in cases]
        new = cases[[key not in known for key in keys]]
        if len(new):
            if len(known) > _MOST_CASES:
                known.clear()
                new = cases
            distinct = Local(batch_K=new[:, 0], grid_KA=new[:, 1:4], filters_K=new[:, 4], channels_K=new[:, 5])
            times = OperatorCosts(self.cluster.device, self.precision, self.profile).times(self.layers, distinct)
            rows = np.stack([times.forward_KU, times.input_KU, times.weight_KU], axis=1)
            known |= zip((case.tobytes() for case in new), rows, strict=True)
        forward, gradient, weight = np.stack([known[key] for key in keys])[which.reshape(-1)].transpose(1, 0, 2)
        return OperatorTimes(forward_KU=forward, input_KU=gradient, weight_KU=weight)

    def passes(self, batch: float) -> tuple[Floats, Floats]:
        """Return forward and backward seconds of every operator for ``batch`` samples on a device, with waits for the
        host.
        """
        times, kinds = self.times(Local.whole(np.array([float(batch)]))), self.layers.kind_of_L
        forward, backward = self.paced(times.forward_KU[:, kinds], times.backward_KU[:, kinds], self.issued_s())
        return forward[0], backward[0]

    def paced(
        self, forward_NL: Floats, backward_NL: Floats, host_N: Floats, launched_NL: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the seconds of kernels with their waits for a host that issues a pass in ``host_N`` seconds.

        ``launched_NL``: 1 for operators that the host issues (None: all operators of the model but views).
        """
        launched = launched_NL
        if launched is None:
            launched = np.broadcast_to(np.where(self.layers.is_kind(Kind.VIEW), 0.0, 1.0), forward_NL.shape)
        host_N = np.broadcast_to(host_N, len(forward_NL))
        if self.inference:
            return in_order(forward_NL, launched, host_N), backward_NL
        return paced(forward_NL, backward_NL, launched, host_N)

    def update_s(self, parameters: Floats | float) -> Floats:
        """Seconds of the update of ``parameters``, without rows of tables (updated in their backward pass)."""
        moves = 0.0 if self.inference else self.profile.optimizer_moves
        return passes_time_s(self.cluster.device, np.asarray(parameters) * 4.0 * moves)

    @property
    def parameter_bytes(self) -> float:
        """Bytes per stored parameter: fp32 for trained parameters, otherwise the compute precision."""
        return self.width if self.inference else 4.0

    @property
    def state_bytes(self) -> float:
        """Bytes of optimizer states per parameter."""
        return 0.0 if self.inference else 4.0 * max(self.profile.state_elements - 1.0, 0.0)

    @property
    def directions(self) -> float:
        """Number of passes of every operator: forward and backward, or forward only."""
        return 1.0 if self.inference else 2.0

    def sparse(self, operator: Operator) -> bool:
        """Check whether an operator's gradient and update are limited to the rows that a step looks up."""
        dense = self.profile.dense_tables
        return operator.kind is Kind.EMBEDDING and not (operator.dense_gradient if dense is None else dense)

    def sent_elements(self, operator: Operator, batch: Floats | float) -> Floats:
        """Exchanged elements of an operator's gradient; if sparse, of the rows looked up by all samples (``batch``)."""
        samples = np.asarray(batch, dtype=np.float64)
        if not self.sparse(operator):
            return np.full_like(samples, operator.parameters)
        return np.minimum(float(operator.parameters), samples * operator.lookups * operator.output[-1])

    def issued_s(self, segments: Floats | float = 1.0, calls: Floats | float = 0.0) -> Floats:
        """Seconds in which the host issues every operator once per direction and microbatch (``segments``), and
        ``calls`` of collectives.
        """
        issued = self.directions * sum(operator.kind is not Kind.VIEW for operator in self.model.operators)
        return np.asarray((issued * segments + calls) * self.profile.operator_host_s)

    @property
    def dense_parameters(self) -> int:
        """Number of parameters without tables that are exchanged and updated by rows."""
        return sum(operator.parameters for operator in self.model.operators if not self.sparse(operator))

    def nodes(self, devices_N: Floats) -> Floats:
        """Return the number of nodes with ``devices_N`` devices."""
        return np.ceil(devices_N / self.cluster.devices_per_node)


def paced(forward_NL: Floats, backward_NL: Floats, launched_NL: Floats, host_N: Floats) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of every operator with its waits for the host, for N passes over L operators.

    ``launched_NL``: 1 for operators that the host issues, in both directions; other operators wait for nothing.
    ``host_N``: seconds in which the host issues an entire pass at an even pace, calls between operators included.
    """
    kernels = np.concatenate([forward_NL, backward_NL[:, ::-1]], axis=1)
    took = in_order(kernels, np.concatenate([launched_NL, launched_NL[:, ::-1]], axis=1), host_N)
    count = forward_NL.shape[1]
    return took[:, :count], took[:, : count - 1 : -1]


def in_order(kernels_NL: Floats, launched_NL: Floats, host_N: Floats) -> Floats:
    """Return the seconds as in ``paced``, of operators that run once, in the order of the columns."""
    before = np.cumsum(launched_NL, axis=1) - launched_NL
    each = host_N / np.maximum(launched_NL.sum(axis=1), 1.0)
    done = np.cumsum(kernels_NL, axis=1)
    lead = np.where(launched_NL > 0, before * each[:, None] - (done - kernels_NL), 0.0)
    # The host issues the first kernel at the start of the pass: no lead is less than zero.
    waited = np.maximum.accumulate(np.maximum(lead, 0.0), axis=1)
    return np.asarray(kernels_NL + np.diff(waited, axis=1, prepend=0.0))


def own_input_s(context: GraphContext, samples: Floats | float) -> Floats:
    """Return the seconds to load and decode samples from the host for one device; 0 where the rate is unknown."""
    counts = np.asarray(samples, dtype=np.float64)
    rate = context.cluster.device.host_bytes_per_s
    elements = float(np.prod(context.model.input))
    return counts * elements * context.width / rate if rate else np.zeros_like(counts)


def stored_input_s(context: GraphContext, samples: Floats | float) -> Floats:
    """Return the seconds to read samples from storage for one node, in stored form; 0 where storage never limits."""
    counts, model = np.asarray(samples, dtype=np.float64), context.model
    if context.profile.storage_bytes_per_s is None:
        return np.zeros_like(counts)
    stored = model.stored_bytes if model.stored_bytes is not None else 4.0 * float(np.prod(model.input))
    return counts * stored / context.profile.storage_bytes_per_s
