"""Default choices of each axis, and their replacement by the user."""

from collections.abc import Iterable, Mapping, Sequence

from forerun.spaces.divisors import divisors
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.schedules.catalogue import virtual
from forerun.spaces.strategies.axes import ALL_REPLICAS, AXES, MODULES, NAMED, SPELLING, Recompute
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.framework_laws import modules_of
from forerun.spaces.strategies.parsing import parse_named
from forerun.spaces.strategies.software import free_choices
from forerun.spaces.strategies.stages import PREDICTING
from forerun.spaces.units import whole_number

LARGEST_TP = 64
"""Limit of tp: the largest scale-up domain on sale (GB200: 72)."""
LARGEST_CP = 32
LARGEST_MBS = 32
LARGEST_VPP = 16
BLOCK_LAYERS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of layers of a (virtual) stage tried for block recompute; from 3 on they grow by a third or less. With powers
of two alone, stages of nine layers that needed five recomputed ran with eight, 9 % slower."""
SETS_FROM, LARGEST_SET = 512, 64
"""Fewest devices for which a search shards states over a part of the replicas, and the largest such part. Smaller
clusters gain nothing; sets of 32 to 128 are equally fast, and 64 suffice for large models (docs/decisions/space.md)."""


def default_choices(context: Context, gpus: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return the choices of every axis for a request over one or several GPU counts.

    Degrees are the divisors of a GPU count up to a useful limit (layers for pp, experts for ep); micro-batch and cp are
    powers of two, and tp is one or divides a node (for example six devices); named choices are those of the framework
    profile.
    """
    legality = context.framework.legality
    layers, devices = context.model.layer_count, sorted({d for n in gpus for d in divisors(n)})
    batch = context.workload.global_batch
    experts = divisors(context.experts)
    predicts = context.model.mtp_layers > 0
    splits = [split for split in legality.splits if predicts or split != "light-mtp"]
    extra = (0, 1, 2, PREDICTING) if predicts else (0, 1, 2)
    return {
        "gpus": tuple(sorted(set(gpus))),
        "pp": tuple(d for d in devices if d <= layers) if legality.pipeline_parallel else (1,),
        "tp": _tensor_degrees(context, devices) if legality.tensor_parallel else (1,),
        "cp": tuple(d for d in devices if d <= LARGEST_CP and d & (d - 1) == 0) if legality.context_parallel else (1,),
        "ep": tuple(d for d in experts if d in devices) if legality.expert_parallel else (1,),
        "etp": tuple(d for d in devices if d <= 8 and d & (d - 1) == 0)
        if context.moe and legality.expert_tensor
        else (1,),
        "vpp": _virtual_stages(layers, extra)
        if any(virtual(number) for number in _named("schedule", legality.schedules))
        else (1,),
        "schedule": _named("schedule", ("1f1b", *legality.schedules)),
        "split": _named("split", ("even", *splits)),
        "mbs": tuple(m for m in (1, 2, 4, 8, 16, 32) if m <= min(batch, LARGEST_MBS)),
        "switches": free_choices(context),
        "zero": tuple(sorted(legality.zero_stages)),
        "shard": _sharing(context, gpus),
        "sp": {"optional": (0, 1), "always": (0, 1), "never": (0,)}[legality.sequence_parallel],
        "recompute": _recompute(context),
        "recompute_layers": (0, *(n for n in BLOCK_LAYERS if n < layers)) if legality.recompute_layers else (0,),
        "placement": _named("placement", legality.placements),
    }


def _tensor_degrees(context: Context, devices: Sequence[int]) -> tuple[int, ...]:
    """Return degrees that are powers of two or divide a node: no measured run has others (``--set tp=3`` adds them)."""
    node, most = context.cluster.devices_per_node, min(LARGEST_TP, context.heads)
    return tuple(d for d in devices if d <= most and (d & (d - 1) == 0 or node % d == 0))


def _recompute(context: Context) -> tuple[int, ...]:
    """Return the framework's choices of recompute, and cheap combinations of modules."""
    # The combinations are norms, activations of experts and latent up-projections together, and the same with entire
    # mixtures.
    legality, applies = context.framework.legality, modules_of(context)
    offered = {MODULES[name] for name in legality.recompute_modules}
    cheap = sum(offered & {m for m in (Recompute.LAYERNORM, Recompute.MOE_ACT, Recompute.MLA_UP_PROJ) if m & applies})
    mixture = (cheap & ~Recompute.MOE_ACT) | Recompute.MOE
    sets = {cheap} | ({mixture} if Recompute.MOE in offered and Recompute.MOE & applies else set())
    return tuple(sorted({*_named("recompute", legality.recompute), *(int(one) for one in sets if one)}))


def _sharing(context: Context, gpus: Sequence[int]) -> tuple[int, ...]:
    """Return all replicas, and the largest set of replicas that divides each large GPU count."""
    # Smaller sets are included where gradients or parameters can be sharded: with optimizer states alone they were
    # never much faster.
    if max(context.framework.legality.partial_zero, default=0) < 2:
        return (ALL_REPLICAS,)
    sets = {max(d for d in divisors(n) if d <= LARGEST_SET) for n in gpus if n >= SETS_FROM}
    return (ALL_REPLICAS, *sorted(sets - {1}))


def _virtual_stages(layers: int, extra: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of virtual stages that suit some pipeline depth."""
    # The numbers divide the number of layers plus ``extra`` ones (embedding, head and prediction block, which may count
    # as layers).
    counts = {d for more in extra for d in divisors(layers + more) if d <= LARGEST_VPP}
    return tuple(sorted(counts | {1, 2}))


def _named(axis: str, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted({parse_named(axis, name) for name in names}))


def restrict(
    choices: Mapping[str, tuple[int, ...]], replacements: Mapping[str, Sequence[object]]
) -> dict[str, tuple[int, ...]]:
    """Replace the ``choices`` of some axes by the user's.

    >>> restrict({"tp": (1, 2, 4), "recompute": (0, 1, 2)}, {"recompute": ["full", "none"]})
    {'tp': (1, 2, 4), 'recompute': (0, 2)}

    Raises:
        RequestError: an axis is unknown or a choice does not belong to its axis.
    """
    result = dict(choices)
    for axis, values in replacements.items():
        if axis == "dp":
            raise RequestError("dp follows from gpus = dp*tp*pp*cp; restrict tp, pp, cp or gpus instead")
        if axis == "gpus" or axis not in AXES:
            raise unknown("axis", axis, [a for a in AXES if a != "gpus"])
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise RequestError(f"choices of {axis} are a list, like [1, 2, 4], but got {values!r}")
        result[axis] = tuple(sorted({_choice(axis, value) for value in values}))
        if not result[axis]:
            raise RequestError(f"axis {axis} has no choice; name at least one")
    return result


def _choice(axis: str, value: object) -> int:
    """Return the number of a user's choice on an axis."""
    text = str(value).strip().lower()
    if axis == "sp" and text in ("true", "false", "on", "off", "yes", "no"):
        return int(text in ("true", "on", "yes"))
    number = whole_number(text)
    if axis in NAMED and number is None:
        return parse_named(axis, text)
    if axis == "shard" and text == "all":
        return ALL_REPLICAS
    if number is None:
        also = ", or all" if axis == "shard" else ""
        raise RequestError(f"choices of {axis} are whole numbers{also}, but got {value!r}")
    if axis in NAMED and number in SPELLING[axis]:
        return number
    lowest, highest = {"zero": (0, 3), "sp": (0, 1), "recompute_layers": (0, 1 << 20)}.get(axis, (1, 1 << 20))
    if axis in NAMED:
        lowest, highest = 0, len(SPELLING[axis]) - 1
    if not lowest <= number <= highest:
        raise RequestError(f"choices of {axis} must be between {lowest} and {highest}, but got {number}")
    return number
