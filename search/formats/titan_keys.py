"""Settings that all versions of torchtitan have: degrees, stages, schedule, sharding."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from forerun.search.formats.contract import Launch
from forerun.search.formats.keys import REST, Launcher, LaunchFacts
from forerun.search.formats.layers import counts_of, in_runs, split_of
from forerun.search.formats.limits import (
    COMMON,
    DEFAULT_PLACEMENT,
    SHARED_BY_WHOLE_REPLICAS,
    only,
    splits_by_rule,
    when,
)
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.writing import settings_of
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Schedule, Split
from forerun.spaces.strategies.axes import schedules_in

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

SCHEDULES = schedules_in("torch")
"""Schedules by their names in torch.distributed.pipelining.schedules."""

NEAR_SCHEDULES = {
    "dualpipev": Schedule.ZB_V,
    "interleavedzerobubble": Schedule.INTERLEAVED,
    "loopedbfs": Schedule.INTERLEAVED,
}
"""Schedules missing in strategies -> the closest one in order and memory."""

TITAN_LIMITS = (
    *COMMON,
    decoders_only("torchtitan"),
    only("schedule", tuple(SCHEDULES), "torchtitan has 1F1B, Interleaved1F1B, GPipe and ZBVZeroBubble"),
    splits_by_rule("torchtitan"),
    DEFAULT_PLACEMENT,
    SHARED_BY_WHOLE_REPLICAS,
    when(
        lambda s: s.cp > 1,
        "--documents with cp={s.cp}: attention of variable lengths takes no context ranks",
        folds="cp",
        packed=True,
    ),
    when(
        lambda s: s.zero == 1,
        "zero=1: FSDP shards gradients with the optimizer (zero=2) or parameters as well (zero=3)",
        zero=2,
    ),
    when(
        lambda s: s.zero == 0 and s.dp * s.cp > 1 and s.tp * s.pp * s.cp * s.ep * s.etp > 1,
        "zero=0: replicas without sharding (DDP) go with no tp, pp, cp or ep in torchtitan",
        zero=2,
    ),
)

VARIABLE = "_varlen"
"""Suffix of a flavor of 0.2.2 with attention over documents of variable lengths."""
PACKED = r",?\s*\battn_backend=['\"](?:flex|varlen)['\"]|^flavor = \"\S+_(?:flex|varlen)\""
"""Attention inside documents, by positions that restart in each document."""


def parallelism(launcher: Launcher, launch: Launch, *, head: str, leave: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of the table without the decisions ``leave``; ``head`` is the module of the output layer."""
    s = launch.strategy
    unused = ({"ep", "etp"} if s.ep == s.etp == 1 else set()) | ({"mbs", "accumulation"} if s.pp == 1 else set())
    settings = settings_of(launcher.keys, launch, leave={*leave, *unused})
    if s.pp > 1:
        settings["parallelism.pipeline_parallel_schedule"] = SCHEDULES[s.schedule]
        settings |= {f"parallelism.{name}": value for name, value in _stages(launch, head).items()}
    return settings


def _stages(launch: Launch, head: str) -> dict[str, Any]:
    """Return the layers of stages: by torchtitan's rule if it gives these stages, else module by module."""
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


def adjust_titan(facts: LaunchFacts) -> None:
    """Determine sharding, the division of layers, and batches in a pipeline.

    Raises
    ------
    RequestError
        Stages or batches do not divide.
    """
    get, values = facts.get, facts.values
    values.setdefault("shard", REST)  # all remaining devices
    values.setdefault("zero", 3 if get("pp", 1) == 1 else 2)  # in a pipeline parameters stay gathered
    flavor = (get("model.name"), re.sub("_(flex|varlen)$", "", str(get("model.flavor"))))
    layers = next((load_model(name).layer_count for name, known in FLAVORS.items() if known == flavor), None)
    if layers is not None:
        values["model.layers"] = layers
    values |= _read_stages(facts.settings, get("pp", 1), layers, facts.source.name, facts.notes)
    for name in ("global_batch", "global_tokens"):
        if get(name) == REST:
            del values[name]
    if get("mbs_tokens") is None:
        facts.assume("local_batch", 8, "as torchtitan assumes")
        mbs = get("mbs", 1) if get("pp", 1) > 1 else get("local_batch")
        if get("local_batch") % mbs:
            raise RequestError(
                f"{facts.source.name}: local_batch_size {get('local_batch')} is not divisible by microbatches of {mbs}"
            )
        values["mbs"] = mbs
        values.pop("accumulation", None)
    elif get("pp", 1) == 1 or get("global_tokens") is not None:
        values.pop("accumulation", None)


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
    """Return the split of the rule for an unknown number of layers."""
    split = {(0, 0): Split.EVEN, (0, 1): Split.LIGHT_LAST, (1, 1): Split.LIGHT_ENDS}.get((first, last), Split.BALANCED)
    split = Split.EVEN if split == Split.LIGHT_ENDS and stages == 2 else split
    notes.append(f"the number of layers is unknown; {first} and {last} fewer in the first and last stage read as split")
    return split


def _of_parts(parts: Any, source: str) -> tuple[int, ...]:
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts) or not parts:
        raise RequestError(f"{source}: module_fqns_per_model_part is a list of lists of module names")
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)


def dealt(layers: int, stages: int, first: int, last: int) -> tuple[int, ...]:
    """Return the layers of each stage under torchtitan's rule (``generate_llm_fqn_per_model_part``).

    Embedding and head count as ``first`` and ``last`` layers.

    >>> dealt(30, 4, 1, 1), dealt(10, 4, 0, 1)
    ((7, 8, 8, 7), (3, 3, 3, 1))

    Raises
    ------
    RequestError
        Stages other than the first and the last would have no layer.
    """
    if stages > layers + 2:
        raise RequestError(f"{layers} layers make at most {layers + 2} pipeline stages, but got {stages}")
    each, more = divmod(layers + first + last, stages)
    counts = [each + (stage < more) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    return tuple(max(0, count) for count in counts)


def parts_text(parts: Sequence[Sequence[str]]) -> str:
    """Return lists of module names valid in TOML and Python."""
    inner = ", ".join("[" + ", ".join(f'"{name}"' for name in part) + "]" for part in parts)
    return f"[{inner}]"
