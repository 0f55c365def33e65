"""Inputs of the core's last step: pipelines, and the candidates that refer to them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.memory.peak import StageMemory
from forerun.simulator.pipeline.closed_forms import PipelineTime
from forerun.simulator.replicas.sharded import HidingPasses, Loops
from forerun.simulator.score_table import Floats
from forerun.spaces.schedules.stage_times import StageTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """S pipelines; every array has shape S."""

    time: PipelineTime
    parts_s: dict[str, Floats]
    """Seconds of a step by part (``TIME_PARTS``), with exposed communication only."""
    stages: StageTimes
    """Passes of one microbatch on every run of stages."""
    before_gradients_s: Floats
    """Seconds of the last microbatch before the first stage's gradients start to be complete."""
    gradient_pass_s: Floats
    """The first stage's pass that completes gradients."""
    passes: HidingPasses
    """Passes that can hide replica traffic."""
    crossed: Floats
    """Ranks that reduce gradients during the last microbatch's backward passes."""
    microbatches: Floats
    """Microbatches of a replica and step."""
    pp: Floats
    """Pipeline ranks."""
    memory: StageMemory
    """Activations, [R, S]."""
    idle_s: tuple[Floats, Floats]
    """Idle seconds of the first stage before its last virtual stage first runs, and after the last backward pass of
    that virtual stage."""
    loops: Loops | None = None
    """Virtual stages one by one; None where every device has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """N candidates; every array has shape N."""

    key: NDArray[np.intp]
    """Index into the pipelines."""
    replica: NDArray[np.intp]
    """Index into the replica costs."""
    zero: Floats | NDArray[np.int64]
    """ZeRO stage."""
    p2p_s: Floats
    """Seconds of one transfer between stages."""
    shared_port: NDArray[np.bool_]
    """Whether replica traffic has the same port."""
    table_share: Floats
    """The token table's share of the largest stage's parameters; used for interleaved stages."""
