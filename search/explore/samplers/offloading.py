"""Shares of a stage's tensors in host memory, if its fastest option does not fit otherwise.

Options that fit without host memory and recompute are fastest, so only other stages are tried. Activations are
offloaded in quarters, whose copies are hidden or waited for; optimizer states in the fewest eighths that fit, since
their update takes longer once a step.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.core.stage_options import StageOptions, class_costs
from forerun.simulator.costs.host import states_on_host
from forerun.simulator.memory.peak import lost_bytes
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Strategy, offload_of
from forerun.spaces.strategies.stage_offload import EIGHTHS
from forerun.spaces.strategies.staged_space import StagedSpace

STEP = 2
"""Tried eighths of activations; single eighths are left to the sampler."""


def with_offload(
    space: StagedSpace,
    degree_class: Strategy,
    options: StageOptions,
    group: NDArray[np.intp],
    time_s: Floats,
    fits: NDArray[np.bool_],
) -> tuple[StageOptions, NDArray[np.intp], Floats, NDArray[np.bool_]]:
    """Return the options of stages extended by options with shares on the host: options, ``group``, seconds of a
    microbatch (including its share of the update's delay) and whether they fit, shape K each.
    """
    own = np.array(offload_of(space.context.framework, None))
    options = replace(options, hosted=np.tile(own, (len(options), 1)))
    rows = np.flatnonzero(~fits[fastest_of(group, time_s)][group])
    if not len(rows):
        return options, group, time_s, fits
    shares = np.array(space.hosted[1][::STEP]) / EIGHTHS
    rows, away = np.repeat(rows, len(shares)), np.tile(shares, len(rows))
    more = replace(options.take(rows), hosted=np.stack((np.zeros(len(away)), away), axis=1))
    more_s, held = _fitting(space, degree_class, more)
    joined = options.beside(more)
    return joined, np.r_[group, group[rows]], np.r_[time_s, more_s], np.r_[fits, held]


def fastest_of(group: NDArray[np.intp], time_s: Floats) -> NDArray[np.intp]:
    """Return the position of the fastest option of every group, shape of the groups."""
    order = np.lexsort((time_s, group))
    first: NDArray[np.intp] = order[np.unique(group[order], return_index=True)[1]]
    return first


def _fitting(space: StagedSpace, degree_class: Strategy, options: StageOptions) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the seconds of a microbatch and whether it fits with the fewest optimizer states on the host, which are
    written into ``options``.
    """
    context = space.context
    cluster, profile = context.cluster, context.framework
    costs = class_costs(context, degree_class, options)
    lacking = np.maximum(costs.peak_bytes - context.memory_limit_bytes, 0.0)
    nothing = dict.fromkeys(("activations", "working", "logits"), np.zeros(len(options)))
    freed = costs.optimizer_bytes + lost_bytes(profile, costs.optimizer_bytes, nothing)
    eighths = np.ceil(EIGHTHS * np.divide(lacking, freed, out=np.full(len(options), np.inf), where=freed > 0))
    eighths = np.where(lacking > 0, eighths, 0.0)
    fits = eighths <= space.hosted[0][-1]
    share = np.where(fits, eighths, 0.0) / EIGHTHS
    left, update_s = states_on_host(cluster, costs.optimizer_bytes, share, overlap=profile.overlap_host_update)
    fits &= left <= (1 - share) * costs.optimizer_bytes * (1 + 1e-9)  # the states fit on the host
    longer_s = np.maximum(np.maximum(update_s, (1 - share) * costs.optimizer_s) - costs.optimizer_s, 0.0)
    assert options.hosted is not None
    options.hosted[:, 0] = share
    microbatches = context.workload.global_batch / (degree_class.dp * degree_class.mbs)
    return costs.time_s + longer_s / microbatches, fits
