"""Replica costs of every pipeline rank once per step, per distinct setting and in sum."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from forerun.simulator.assignment.value import Assignment, Blocks, by_replicas
from forerun.simulator.layer.asked import Asked, asked
from forerun.simulator.replicas.buffers import bucket_bytes
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, replica_costs
from forerun.simulator.score_table import Floats
from forerun.simulator.stages.parameters import StageParameters, stage_parameters
from forerun.spaces.strategies import Context, Strategy, offload_of

_MOST = 4096
"""Limit of cached costs of one request and its software, a few arrays with one number per rank each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReplicas:
    """The once-per-step costs of the layers with the same settings."""

    settings: Strategy
    """Degrees, sharding and recompute."""
    costs: ReplicaCosts
    """Costs on P ranks."""
    parameters: Floats
    """Parameters on one device of each of C virtual stages."""


def parameters_with(context: Context, settings: Strategy, held: Floats) -> StageParameters:
    """Return the parameters on one device of layers ``held`` [B, K] with the same settings, [1, K]."""
    tp, ep, etp = (np.full(held.shape[1], float(degree)) for degree in (settings.tp, settings.ep, settings.etp))
    return stage_parameters(context, held[:, None, :], tp, ep, etp)


def parameter_counts(context: Context, settings: Strategy, held: Floats) -> Floats:
    """Count the parameters of layers ``held`` [B, K] with the same settings on one device, shape K."""
    each = parameters_with(context, settings, held)
    return np.asarray((each.dense + each.expert)[0] * (held.sum(axis=0) > 0))


def replicas_by_settings(assignment: Assignment, blocks: Blocks, *, fill: bool = True) -> list[SettingsReplicas]:
    """Return the once-per-step costs of ``blocks`` [B, C], merged over settings with equal replica costs.

    A rank has costs of its layers' settings; a rank without layers has the first setting's costs, if ``fill``.
    """
    joined = by_replicas(blocks)
    on_ranks = {settings: assignment.on_ranks(held) for settings, held in joined.items()}
    present = {settings: on.sum(axis=0) > 0 for settings, on in on_ranks.items()}
    if fill:
        first = next(iter(present))
        present[first] = present[first] | ~np.any(list(present.values()), axis=0)
    return [
        SettingsReplicas(
            settings=settings,
            costs=_costs(assignment, settings, on_ranks[settings], present[settings].astype(np.float64)),
            parameters=parameter_counts(assignment.context, settings, held),
        )
        for settings, held in joined.items()
    ]


def _costs(assignment: Assignment, settings: Strategy, on: Floats, here: Floats) -> ReplicaCosts:
    """Return the once-per-step costs of layers ``on`` [B, P] ranks; none where ``here`` is 0.0, shape P."""
    rounds, known = float(assignment.rounds), _known(asked(assignment.context))
    key = settings, rounds, on.tobytes(), here.tobytes()
    if key not in known:
        if len(known) >= _MOST:
            known.clear()
        degrees = {axis: np.full(on.shape[1], float(getattr(settings, axis))) for axis in REPLICA_DEGREES}
        context, parameters = assignment.context, parameters_with(assignment.context, settings, on)
        virtual = float(settings.vpp)
        away = np.full((1, on.shape[1]), offload_of(context.framework, settings.stage_offload).optimizer)
        replicas = Replicas(parameters=parameters, rounds=rounds, virtual=virtual, on_host=away, **degrees)
        costs = replica_costs(context, replicas)
        known[key] = ReplicaCosts(**{entry.name: getattr(costs, entry.name) * here for entry in fields(ReplicaCosts)})
    return known[key]


@lru_cache(maxsize=32)
def _known(_: Asked) -> dict[tuple[Strategy, float, bytes, bytes], ReplicaCosts]:
    """Return a request's cache of costs: similar trees differ in few settings."""
    return {}


def all_replicas(context: Context, each: Sequence[SettingsReplicas]) -> ReplicaCosts:
    """Return the sum over settings, with the largest set of shared gradient buckets."""
    if len(each) == 1:
        return each[0].costs
    buckets = [_bucket_copies(context, one) for one in each]
    names = [entry.name for entry in fields(ReplicaCosts)]
    total = ReplicaCosts(**{name: sum(getattr(one.costs, name) for one in each) for name in names})
    shared = np.sum(buckets, axis=0) - np.max(buckets, axis=0)
    tied_s: Floats = np.stack([one.costs.tied_s for one in each]).max(axis=0)
    return replace(total, buffer_bytes=total.buffer_bytes - shared, tied_s=tied_s)


def _bucket_copies(context: Context, one: SettingsReplicas) -> Floats:
    """Return the bytes of gradient buckets and library scratch memory of one setting's layers on every rank, [1, P]."""
    ranks = np.full_like(one.costs.reduce_s, float(one.settings.dp * one.settings.cp))
    copies = context.framework.bucket_copies * bucket_bytes(context, ranks)
    here = one.costs.parameter_bytes[0] > 0
    held = np.where((ranks > 1) & here, copies, 0.0) + np.where(here, context.framework.workspace_bytes, 0.0)
    return held[None, :]
