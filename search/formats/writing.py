"""Writing of a launch by the table of a launcher: every relevant key with its value or word.

The same table reads (``keys.read_keys``), so that a key is named once. Other contents of a file (optimizer, data,
settings of a short run) belong to the launcher.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from forerun.search.formats.adapters import LORA
from forerun.search.formats.contract import Launch
from forerun.search.formats.keys import LaunchKey
from forerun.search.formats.model_facts import model_facts
from forerun.spaces.strategies import ALL_LAYERS, Placement, Recompute


def settings_of(keys: Sequence[LaunchKey], launch: Launch, *, leave: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of a launch by the first name of each key, without the decisions, or names, of ``leave``.

    A key without a word for the launch, or a fact that the model lacks, is omitted.
    """
    values = _decided(launch)
    settings: dict[str, Any] = {}
    for key in keys:
        written = key.written if isinstance(key.written, bool) else key.written(launch)
        left = key.decides in leave or key.names[0] in leave or not written
        if not left and values.get(key.decides) is not None:
            word = _word(key, values[key.decides])
            settings |= {} if word is None else {key.names[0]: word}
    return settings


def _word(key: LaunchKey, value: Any) -> Any:
    if key.words is None:
        return value
    words = [word for word, meaning in key.words.items() if meaning is not None and meaning == value]
    if "true" in key.words:  # a flag; one without a negative form is omitted if off
        return {"true": True, "false": False}.get(words[0]) if words else None
    return None if not words else int(words[0]) if words[0].isdecimal() else words[0]


def _decided(launch: Launch) -> dict[str, Any]:
    """Return the values of a launch by decision."""
    s, workload = launch.strategy, launch.workload
    degrees = {name: getattr(s, name) for name in ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "mbs", "zero", "sp")}
    some = s.recompute_layers != ALL_LAYERS
    copies = s.copies if s.zero else s.dp
    # In a pipeline the batch of a replica is all microbatches of one pipeline run.
    local = workload.global_batch // s.dp if s.pp > 1 else s.mbs
    return {
        **degrees,
        "replicate": copies,
        "shard": s.dp // copies,
        "nodes": launch.nodes,
        "devices_per_node": launch.devices_used_per_node,
        "devices": s.devices,
        "accumulation": launch.microbatches,
        "local_batch": local,
        "mbs_tokens": s.mbs * workload.seq_len,
        "global_tokens": workload.tokens_per_step,
        "global_batch": workload.global_batch,
        "seq_len": workload.seq_len,
        "recompute": Recompute.FULL if some else s.recompute,
        "precision": workload.precision,
        "schedule": s.schedule,
        "placement": s.placement == Placement.TP_CP_EP_PP_DP,
        "instances": s.copies if s.shard else None,
        "adapter": LORA if launch.tuning.rank else None,
        "adapter_rank": launch.tuning.rank or None,
        **{f"model.{name}": value for name, value in model_facts(launch.model, workload.seq_len).items()},
    }


def nested(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name as sections, later parts override earlier ones.

    >>> nested({"a.b": 1, "c": 2}, {"a.d": 3})
    {'a': {'b': 1, 'd': 3}, 'c': 2}
    """
    nested: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            *sections, last = name.split(".")
            inner = nested
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[last] = value
    return nested
