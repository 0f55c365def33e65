"""Names of collectives in the programs of nccl-tests -> forerun's."""

from collections.abc import Mapping

KIND_OF_TEST: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
}
"""Keys: the program's name without ``_perf`` and underscores."""
