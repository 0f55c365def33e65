"""nanotron 0.5: one YAML file with sections ``parallelism``, ``tokens``, ``optimizer``, ``model``.

Source: ``src/nanotron/config`` and ``src/nanotron/parallel/context.py`` of huggingface/nanotron: there are
devices / (tp * pp * cp) replicas, and expert ranks are replicas.
"""

import dataclasses
from typing import Any

from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import TORCHRUN, harmless, scripts
from forerun.search.formats.limits import COMMON, is_mixture, when
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import builds, decoders_only
from forerun.search.formats.software import flags_of
from forerun.search.formats.syntax import document
from forerun.search.formats.writing import nested, settings_of
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.strategies import Schedule, Split

NAME, VERSION = "nanotron", "0.5"
MAIN = "nanotron.yaml"

DOCUMENTS = {
    "model.model_config._attn_implementation": "flash_attention_2",
    "model.model_config._use_doc_masking": True,
    "model.model_config.attention_bias": False,
}
"""Attention inside documents, which its Qwen 2 alone has; a Llama is one without biases."""


def _by_cost(launch: Launch) -> Launch:
    """Return the launch with nanotron's split by cost, which ``change`` would replace."""
    strategy = dataclasses.replace(launch.strategy, split=Split.BY_COST, layers_per_stage=None)
    return dataclasses.replace(launch, strategy=strategy)


def _dealt_otherwise(launch: Launch) -> bool:
    s = launch.strategy
    return s.pp > 1 and (s.split != Split.BY_COST or s.layers_per_stage is not None)


def write(launch: Launch) -> Files:
    """Return the YAML and launch scripts; mixtures use nanotron's Qwen configuration with experts."""
    s, kind = launch.strategy, "is_qwen2_config" if is_mixture(launch.model) else "is_llama_config"
    sections: dict[str, Any] = {
        "general.run": harmless(launch.name),
        "parallelism.tp_linear_async_communication": s.sp,
    }
    run = {**LAUNCHER.run, "tokens.train_steps": launch.job.steps}
    if launch.packed:
        kind = "is_qwen2_config"
        sections |= DOCUMENTS
    sections[f"model.model_config.{kind}"] = True
    data = nested(run, sections, settings_of(LAUNCHER.keys, launch), flags_of(launch, NAME))
    text = dump_yaml(data, f"{launch.name}: nanotron {VERSION}, {s}", "add data_stages; without them data are random")
    command = [*TORCHRUN, f'"${{NANOTRON_PATH:-.}}/run_train.py" --config-file {MAIN}']
    return {MAIN: text, **scripts(launch, f"nanotron {VERSION}", command)}


def adjust(facts: LaunchFacts) -> None:
    """Determine the pipeline: layers are divided by cost, and without an engine all forward passes are first."""
    facts.missing("dp", "mbs", "accumulation")
    if facts.get("pp", 1) > 1:
        facts.values["split"] = Split.BY_COST
        facts.assume("schedule", Schedule.GPIPE, "as nanotron assumes")


LAUNCHER = read_launcher(NAME, version=VERSION, syntax=document, adjust=adjust)
LIMITS = (
    *COMMON,
    decoders_only("nanotron"),
    *by_keys(LAUNCHER),
    when(
        lambda s: s.cp > 1, "--documents with cp={s.cp}: ring attention is of whole sequences", folds="cp", packed=True
    ),
    builds(
        "nanotron builds Llama and Qwen 2 alone",
        "latent attention",
        "layers of several kinds",
        "learned positions",
        "LayerNorm with biases",
        "an MLP of two matrices",
        "biases",
        "query and key norms",
        "sliding windows",
        "heads that are no share of the width",
        "norms after blocks",
        "shared experts",
        "biases of router or experts",
        "extra predictions",
    ),
    Limit(
        broken=_dealt_otherwise,
        reason=lambda launch: "the split: nanotron divides layers by cost only (split=by-cost)",
        fix=_by_cost,
    ),
)
FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, packs=r"\b_use_doc_masking:\s*true\b")
