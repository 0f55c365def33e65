"""veRL 0.9: the training part of a script with Hydra overrides (``actor_rollout_ref.actor.*``), and its SFT trainers.

Source: ``verl/trainer/config`` 0.9.1 and ``verl/workers``: a step of the actor has a mini-batch of prompts times the
answers per prompt; FSDP shards parameters, Megatron has its distributed optimizer. Generation is not read.
"""

from forerun.search.formats.facts import world
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import document, is_yaml, overrides
from forerun.spaces.strategies import Recompute, Split

ACTOR = "actor_rollout_ref.actor."
OVERRIDES = f"{ACTOR}megatron.override_transformer_config."


def adjust(facts: LaunchFacts) -> None:
    """Determine length, batch and sharding."""
    settings = facts.settings
    lengths = [settings.whole(f"data.max_{part}_length") for part in ("prompt", "response")]
    if any(lengths) and facts.get("seq_len") is None:
        facts.values["seq_len"] = sum(length or 0 for length in lengths)
    answers = settings.whole("actor_rollout_ref.rollout.n") or 1
    if facts.get("global_batch") is not None and "actor_rollout_ref.actor.ppo_mini_batch_size" in settings.names():
        facts.values["global_batch"] *= answers
    megatron = bool(facts.stated & {"tp", "pp", "ep"}) or settings.text(f"{ACTOR}strategy") == "megatron"
    megatron = megatron or "megatron" in str(settings.raw("model_engine", "actor_rollout_ref.actor.strategy"))
    sharded = settings.flag(f"{ACTOR}megatron.use_distributed_optimizer")
    facts.values["zero"] = (0 if sharded is False else 1) if megatron else 3
    if megatron:
        facts.values["sp"] = (
            settings.flag(f"{ACTOR}megatron.sequence_parallel", "engine.sequence_parallel") is not False
        )
        facts.values["recompute"] = facts.get("recompute_granularity") or _granularity(facts)
        ends = [settings.flag(f"{OVERRIDES}account_for_{end}_in_pipeline_split") for end in ("embedding", "loss")]
        if ends[1]:
            facts.values["split"] = Split.LIGHT_ENDS if ends[0] and facts.get("pp", 1) > 2 else Split.LIGHT_LAST
    micro_batch = settings.whole(f"{ACTOR}ppo_micro_batch_size")
    devices = world(facts).devices
    if micro_batch is not None and devices is not None and facts.get("mbs") is None:
        facts.assume("mbs", max(1, micro_batch // devices), f"ppo_micro_batch_size={micro_batch} of all devices")
    if facts.get("shard") == REST:
        facts.values.pop("shard")
    if facts.get("shard") is not None:
        facts.values |= {"replicate": REST, "shard": max(1, facts.get("shard") // facts.get("cp", 1))}
    if settings.flag(f"{ACTOR}use_dynamic_bsz", "data.use_dynamic_bsz"):
        facts.notes.append("use_dynamic_bsz packs microbatches by tokens, the longest sequences one by one")
        most = settings.whole(f"{ACTOR}ppo_max_token_len_per_gpu") or 1
        facts.values.pop("mbs", None)
        facts.values["most_mbs"] = max(1, most * facts.get("cp", 1) // facts.get("seq_len", most))
    last = settings.whole(f"{OVERRIDES}num_layers_in_last_pipeline_stage")
    first = settings.whole(f"{OVERRIDES}num_layers_in_first_pipeline_stage")
    if facts.get("pp", 1) > 1 and (first or last):
        stated = f"{first or 'the rest'} in the first and {last or 'the rest'} in the last stage"
        facts.notes.append(f"layers: {stated}; without the number of all layers read as split=balanced")
        facts.values["split"] = Split.BALANCED
    for what in ("param", "optimizer"):
        if settings.flag(f"{ACTOR}fsdp_config.{what}_offload", f"{ACTOR}megatron.{what}_offload"):
            facts.notes.append(f"offload of {what} is not part of a strategy")


def _granularity(facts: LaunchFacts) -> Recompute:
    prefix = f"{OVERRIDES}recompute_granularity"
    word = facts.settings.text(prefix) or facts.settings.text(
        "engine.override_transformer_config.recompute_granularity"
    )
    return {"full": Recompute.FULL, "selective": Recompute.SELECTIVE}.get(word or "", Recompute.NONE)


LAUNCHER = read_launcher(
    "verl",
    syntax=lambda source: document(source) if is_yaml(source) else overrides(source),
    adjust=adjust,
)
