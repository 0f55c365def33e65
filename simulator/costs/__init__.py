"""Cost rules: seconds of an operator on a device and of a collective on links. Rules accept arrays.

Shapes: results have the broadcast shape of the arguments; measurements of one operator (``measured``): M measurements,
D numbers per shape, N queries.
"""

from forerun.simulator.costs.attention import ATTENTION_KERNELS, attended_pairs, attention_time_s, attention_work
from forerun.simulator.costs.collectives import (
    Collective,
    block_stride,
    collective_time_s,
    members_per_level,
    point_to_point_time_s,
    stride_of,
)
from forerun.simulator.costs.efficiency import ComputeEfficiency, compute_provenance, device_efficiency
from forerun.simulator.costs.gemm import INPUT_BYTES, GemmKind, gemm_bytes, gemm_time_s
from forerun.simulator.costs.memory_bound import (
    adam_time_s,
    launched_s,
    memory_bound_time_s,
    passes_time_s,
    stream_operator,
    stream_operator_time_s,
    stream_operators,
)

__all__ = [
    "ATTENTION_KERNELS",
    "INPUT_BYTES",
    "Collective",
    "ComputeEfficiency",
    "GemmKind",
    "adam_time_s",
    "attended_pairs",
    "attention_time_s",
    "attention_work",
    "block_stride",
    "collective_time_s",
    "compute_provenance",
    "device_efficiency",
    "gemm_bytes",
    "gemm_time_s",
    "launched_s",
    "members_per_level",
    "memory_bound_time_s",
    "passes_time_s",
    "point_to_point_time_s",
    "stream_operator",
    "stream_operator_time_s",
    "stream_operators",
    "stride_of",
]
