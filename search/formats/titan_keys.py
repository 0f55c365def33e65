"""What torchtitan's configurations have in common over its versions: degrees, stages, schedule, sharding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.devices import RunReplicas, World, replicas, shard_stated
from forerun.search.formats.layers import counts_of, in_runs, split_of
from forerun.search.formats.limits import (
    COMMON,
    DEFAULT_PLACEMENT,
    SHARED_BY_WHOLE_REPLICAS,
    change,
    decoders_only,
    fixed,
    only,
    splits_by_rule,
)
from forerun.search.formats.settings import LaunchSettings
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Schedule, Split, Strategy

FLAVORS = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"),
    "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
    "deepseek-v2": ("deepseek_v3", "236B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
}
"""Model of the catalogue: name and flavor in torchtitan's registries (torchtitan/models, 0.2.2 and 0.3.0)."""

SCHEDULES = {
    Schedule.ONE_F_ONE_B: "1F1B",
    Schedule.INTERLEAVED: "Interleaved1F1B",
    Schedule.GPIPE: "GPipe",
    Schedule.ZB_V: "ZBVZeroBubble",
}
"""Schedules by their names in torch.distributed.pipelining.schedules."""

NEAR_SCHEDULES = {
    "dualpipev": Schedule.ZB_V,
    "interleavedzerobubble": Schedule.INTERLEAVED,
    "loopedbfs": Schedule.INTERLEAVED,
}
"""Schedules that strategies do not name: the one that comes closest in order and memory."""

TITAN_LIMITS = (
    *COMMON,
    decoders_only("torchtitan"),
    only("schedule", tuple(SCHEDULES), "torchtitan has 1F1B, Interleaved1F1B, GPipe and ZBVZeroBubble"),
    splits_by_rule("torchtitan"),
    DEFAULT_PLACEMENT,
    SHARED_BY_WHOLE_REPLICAS,
    fixed(
        lambda launch: launch.strategy.zero == 1,
        "zero=1: FSDP shards gradients with the optimizer (zero=2) or parameters as well (zero=3)",
        zero=2,
    ),
    Limit(
        broken=lambda launch: (
            launch.strategy.zero == 0 and launch.strategy.dp * launch.strategy.cp > 1 and not _ddp(launch)
        ),
        reason=lambda launch: "zero=0: replicas without sharding (DDP) go with no tp, pp, cp or ep in torchtitan",
        fix=lambda launch: change(launch, zero=2),
    ),
)


def _ddp(launch: Launch) -> bool:
    s = launch.strategy
    return s.tp * s.pp * s.cp * s.ep * s.etp == 1


def parallelism(launch: Launch, *, head: str, microbatch: str | None) -> dict[str, Any]:
    """Return the settings of ``parallelism``; ``head`` is the module of the output layer, ``microbatch`` the setting of
    its size under a pipeline."""
    s = launch.strategy
    found: dict[str, Any] = {
        "data_parallel_replicate_degree": s.dp if s.zero == 0 else s.copies,
        "data_parallel_shard_degree": 1 if s.zero == 0 else s.dp // s.copies,
        "fsdp_reshard_after_forward": {0: "default", 2: "never", 3: "always"}[s.zero],
        "tensor_parallel_degree": s.tp,
        "context_parallel_degree": s.cp,
        "pipeline_parallel_degree": s.pp,
    }
    if s.pp > 1:
        found["pipeline_parallel_schedule"] = SCHEDULES[s.schedule]
        found |= _stages(launch, head)
        if microbatch is not None:
            found[microbatch] = s.mbs
    if s.ep > 1 or s.etp > 1:
        found["expert_parallel_degree"] = s.ep
    return found


def _stages(launch: Launch, head: str) -> dict[str, Any]:
    """Return how layers are dealt: by torchtitan's own rule where it gives these stages, else module by module."""
    s = launch.strategy
    less = {Split.EVEN: (0, 0), Split.LIGHT_LAST: (0, 1), Split.LIGHT_ENDS: (1, 1)}
    if s.layers_per_stage is None and s.split in less and s.vpp <= 2:
        first, last = less[s.split]
        return {
            "pipeline_parallel_first_stage_less_layers": first,
            "pipeline_parallel_last_stage_less_layers": last,
        }
    counts = counts_of(s, launch.model.layer_count)
    stages, done = [], 0
    for count in counts:
        stages.append([f"layers.{layer}" for layer in range(done, done + count)])
        done += count
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", head]
    return {"module_fqns_per_model_part": stages}


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanDegrees:
    """What ``parallelism`` says, as fields of a strategy, with the replicas and the number of layers where known."""

    fields: dict[str, Any]
    found: RunReplicas
    layers: int | None


def read_degrees(
    settings: LaunchSettings, world: World, flavor: tuple[str, str] | None, source: str, notes: list[str]
) -> TitanDegrees:
    """Read ``parallelism``; ``flavor`` is the model's name and flavor where the file names both.

    Raises:
        RequestError: a value is of the wrong type, or the degrees do not fill the GPUs.
    """
    key = "parallelism.{}".format
    tp = settings.whole(key("tensor_parallel_degree")) or 1
    pp = settings.whole(key("pipeline_parallel_degree")) or 1
    cp = settings.whole(key("context_parallel_degree")) or 1
    replicate = settings.whole(key("data_parallel_replicate_degree")) or 1
    shard = settings.whole(key("data_parallel_shard_degree"), least=-1)
    shard = -1 if shard is None else shard
    found, shard = _replicas(world, tp, pp, cp, replicate, shard, source)
    layers = next((load_model(name).layer_count for name, known in FLAVORS.items() if known == flavor), None)
    fields: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "dp": found.dp, "sp": tp > 1}
    fields["zero"] = _zero(settings, shard, cp, pp)
    if fields["zero"] and replicate > 1:
        fields["shard"] = shard_stated(shard * cp if shard > 0 else None, replicate, notes)
    fields["ep"] = settings.whole(key("expert_parallel_degree")) or 1
    fields["etp"] = settings.whole(key("expert_tensor_parallel_degree")) or 1
    fields |= _read_stages(settings, pp, layers, source, notes)
    return TitanDegrees(fields=fields, found=found, layers=layers)


def _replicas(
    world: World, tp: int, pp: int, cp: int, replicate: int, shard: int, source: str
) -> tuple[RunReplicas, int]:
    """Return the replicas, and the shard degree with -1 ("the rest") resolved where the GPUs are known."""
    if shard == 0 or shard < -1:
        raise RequestError(f"{source}: data_parallel_shard_degree must be -1 (all that is left) or at least 1")
    if shard > 0:
        dp = replicate * shard
        devices = dp * tp * pp * cp
        if world.devices not in (None, devices):
            raise RequestError(f"{source}: the degrees occupy {devices} GPUs, but {world.devices} are given")
        return RunReplicas(dp=dp, known=True), shard
    what = f"dp_replicate*tp*pp*cp = {replicate}*{tp}*{pp}*{cp}"
    found = replicas(world, replicate * tp * pp * cp, what=what, source=source)
    if not found.known:
        return RunReplicas(dp=replicate, known=False, defaults=found.defaults, notes=found.notes), -1
    return RunReplicas(dp=replicate * found.dp, known=True), found.dp


def _zero(settings: LaunchSettings, shard: int, cp: int, pp: int) -> int:
    """FSDP shards over ``shard * cp`` ranks; under a pipeline ``default`` keeps parameters gathered."""
    policy = settings.one_of("parallelism.fsdp_reshard_after_forward", ("default", "always", "never")) or "default"
    if shard * cp == 1:
        return 0
    if policy == "default":
        return 3 if pp == 1 else 2
    return 3 if policy == "always" else 2


def _read_stages(
    settings: LaunchSettings, pp: int, layers: int | None, source: str, notes: list[str]
) -> dict[str, Any]:
    written = settings.text("parallelism.pipeline_parallel_schedule") or "1F1B"
    first = settings.whole("parallelism.pipeline_parallel_first_stage_less_layers", least=0)
    last = settings.whole("parallelism.pipeline_parallel_last_stage_less_layers", least=0)
    first, last = 1 if first is None else first, 1 if last is None else last
    each = settings.whole("parallelism.pipeline_parallel_layers_per_stage")
    parts = settings.raw("parallelism.module_fqns_per_model_part")
    if settings.text("parallelism.pipeline_parallel_schedule_csv"):
        notes.append("pipeline_parallel_schedule_csv replaces the schedule; its file is not read")
    if pp == 1:
        return {}
    schedule = _schedule(written, source, notes)
    single = schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE)
    counts: tuple[int, ...] | None
    if parts is not None:
        counts = _of_parts(parts, source)
    elif each is not None and layers is not None:
        counts = dealt(layers, -(-(layers + first + last) // each), first, last)
    else:
        counts = None if layers is None else dealt(layers, pp * (1 if single else 2), first, last)
    stages = len(counts) if counts is not None else pp * (1 if single else 2)
    if stages % pp or (single and stages != pp):
        raise RequestError(f"{source}: {stages} pipeline stages do not go with pp={pp} and schedule {written}")
    vpp = stages // pp
    if counts is None:
        return {"schedule": schedule, "vpp": vpp, "split": _guessed(first, last, stages, notes)}
    named = split_of(counts, pp=pp, vpp=vpp)
    if named is None:
        notes.append(f"stages of {in_runs(counts)} layers are named by no strategy; read as split=balanced")
        named = Split.BALANCED, None
    return {"schedule": schedule, "vpp": vpp, "split": named[0], "layers_per_stage": named[1]}


def _schedule(written: str, source: str, notes: list[str]) -> Schedule:
    by_name = {name.lower(): schedule for schedule, name in SCHEDULES.items()}
    if written.lower() in NEAR_SCHEDULES:
        near = NEAR_SCHEDULES[written.lower()]
        notes.append(f"schedule {written} has no name in a strategy; read as {SCHEDULES[near]}")
        return near
    if written.lower() not in by_name:
        known = ", ".join([*SCHEDULES.values(), "DualPipeV", "InterleavedZeroBubble", "LoopedBFS"])
        raise RequestError(f"{source}: unknown pipeline_parallel_schedule {written!r}; known: {known}")
    return by_name[written.lower()]


def _guessed(first: int, last: int, stages: int, notes: list[str]) -> Split:
    """Return the split that the rule means where the number of layers is unknown."""
    split = {(0, 0): Split.EVEN, (0, 1): Split.LIGHT_LAST, (1, 1): Split.LIGHT_ENDS}.get((first, last), Split.BALANCED)
    split = Split.EVEN if split == Split.LIGHT_ENDS and stages == 2 else split
    notes.append(f"the number of layers is unknown; {first} and {last} fewer in the first and last stage read as split")
    return split


def _of_parts(parts: Any, source: str) -> tuple[int, ...]:
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts) or not parts:
        raise RequestError(f"{source}: module_fqns_per_model_part is a list of lists of module names")
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)


def dealt(layers: int, stages: int, first: int, last: int) -> tuple[int, ...]:
    """Return the layers of each stage under torchtitan's rule, where embedding and head count as ``first`` and ``last``
    layers (``generate_llm_fqn_per_model_part``).

    >>> dealt(30, 4, 1, 1), dealt(10, 4, 0, 1)
    ((7, 8, 8, 7), (3, 3, 3, 1))

    Raises:
        RequestError: stages other than the first and the last would have no layer.
    """
    if stages > layers + 2:
        raise RequestError(f"{layers} layers make at most {layers + 2} pipeline stages, but got {stages}")
    each, more = divmod(layers + first + last, stages)
    counts = [each + (stage < more) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    return tuple(max(0, count) for count in counts)


def strategy_of(fields: dict[str, Any], mbs: int, recompute: Any) -> Strategy:
    """Return the strategy of read degrees."""
    return Strategy(mbs=mbs, recompute=recompute, **fields)


def parts_text(parts: Sequence[Sequence[str]]) -> str:
    """Return lists of module names as TOML and Python both write them."""
    inner = ", ".join("[" + ", ".join(f'"{name}"' for name in part) + "]" for part in parts)
    return f"[{inner}]"
