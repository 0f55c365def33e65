"""Cache keys of block costs: the parts of a request on which they depend."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.same import Same
from forerun.spaces.strategies import Context
from forerun.spaces.workload import Workload

Entry = TypeVar("Entry", FrameworkProfile, Workload)
OF_WHOLE_STEPS: Mapping[str, Any] = {
    "host_layer_s": 0.0, "host_rank_s": 0.0, "pipeline_rank_s": 0.0, "host_expert_s": 0.0, "host_microbatch_s": 0.0,
    "host_step_s": 0.0, "p2p_fixed_s": 0.0, "overlap_gradients": 0.0, "overlap_parameters": 0.0,
    "graphs": "none", "overlap_pipeline": False, "switches": (),
}  # fmt: skip
"""Fields of a profile for entire passes and steps, which do not affect a block, with a fixed value each. Calibrations
and switches change them, but the times of blocks stay equal."""
OF_EXPERTS: Mapping[str, Any] = {"graphed": ()}
"""Further fields without an effect on blocks of a model without routed experts."""
OF_TRAFFIC: Mapping[str, Any] = {
    "overlap_tensor": 0.0, "overlap_tensor_backward": 0.0, "overlap_context": 0.0, "overlap_expert": 0.0,
    "overlap_shared_experts": False, "reserves_expert_multiprocessors": False, "expert_multiprocessors": 0.0,
    "dispatch_share": 1.0, "dispatches_once": False, "gathers_tokens": False, "tensor_step_s": 0.0,
    "collective_launch_s": 0.0, "expert_wait_s": 0.0, "graphed": (),
}  # fmt: skip
"""Fields that affect a block's communication, but not its computation."""

Asked = tuple[Same[Any], ...]


def asked(context: Context) -> Asked:
    """Return the key of block times and replica costs, apart from the strategy."""
    profile = _of_blocks(context.framework, context.moe)
    return tuple(map(Same, (context.model, context.cluster, _of_sequences(context.workload), profile)))


def asked_of_devices(context: Context) -> Asked:
    """Return the key of a device's work for a block, which does not depend on links and overlap."""
    profile = _of_devices(context.framework)
    return tuple(map(Same, (context.model, context.cluster.device, _of_sequences(context.workload), profile)))


@lru_cache(maxsize=64)
def _of_blocks(profile: FrameworkProfile, moe: bool) -> FrameworkProfile:
    """Return one object for all profiles that differ only in ``OF_WHOLE_STEPS``.

    Without experts the profiles may also differ in ``OF_EXPERTS``.
    """
    found: FrameworkProfile = _first_equal(replace(profile, **OF_WHOLE_STEPS, **({} if moe else OF_EXPERTS)))
    return found


@lru_cache(maxsize=64)
def _of_devices(profile: FrameworkProfile) -> FrameworkProfile:
    """Return one object for all profiles that differ only in ``OF_WHOLE_STEPS`` and ``OF_TRAFFIC``."""
    found: FrameworkProfile = _first_equal(replace(profile, **OF_WHOLE_STEPS, **OF_TRAFFIC))
    return found


@lru_cache(maxsize=64)
def _of_sequences(workload: Workload) -> Workload:
    """Return one object for all workloads that differ only in the sequences of a step or of the training."""
    found: Workload = _first_equal(replace(workload, global_batch=1, tokens=None))
    return found


@lru_cache(maxsize=128)
def _first_equal(value: Entry) -> Entry:
    return value
