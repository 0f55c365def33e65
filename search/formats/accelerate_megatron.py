"""Hugging Face accelerate 1.15 with its Megatron-LM plugin: a YAML file and a launch script.

Source: ``MegatronLMPlugin`` in ``accelerate/utils/dataclasses.py``; its defaults apply to missing settings.
"""

from forerun.search.formats.accelerate_common import VERSION, common, files
from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.layers import counts_of, split_of
from forerun.search.formats.limits import (
    COMMON,
    change,
    folded,
    only,
    precisions,
    splits_by_rule,
)
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.program_arguments import document_and_program, trainer_arguments
from forerun.search.formats.writing import nested, settings_of
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute, Split

NAME, MAIN = "accelerate-megatron", "accelerate-megatron.yaml"


KEY = "megatron_lm_config.megatron_lm_{}".format


def _last_differs(launch: Launch) -> bool:
    """Whether all stages but the last have the same number of layers."""
    s = launch.strategy
    if s.split not in (Split.EVEN, Split.BALANCED, Split.LIGHT_LAST, Split.LIGHT_ENDS):
        return True  # checked by another limit
    return s.pp == 1 or len(set(counts_of(s, launch.model.layer_count)[:-1])) == 1


def write(launch: Launch) -> Files:
    """Return the YAML of the Megatron-LM plugin and a launch script."""
    s = launch.strategy
    arguments = [argument for argument in trainer_arguments(launch) if "accumulation" not in argument]
    stated = settings_of(LAUNCHER.keys, launch, leave=("devices", "precision"))
    plugin = LAUNCHER.run | nested(stated)["megatron_lm_config"]
    if s.pp > 1 and len(set(counts := counts_of(s, launch.model.layer_count))) > 1:
        plugin["megatron_lm_decoder_last_pipeline_num_layers"] = counts[-1]
        arguments.append(f"--num_layers {launch.model.layer_count}")  # readers need it for the other stages
    data = common(launch, "MEGATRON_LM")
    data["megatron_lm_config"] = plugin
    return files(launch, MAIN, data, arguments)


def adjust(facts: LaunchFacts) -> None:
    """Apply the plugin's defaults, and determine a last stage with different layers.

    Raises
    ------
    RequestError
        The remaining layers do not divide among the other stages.
    """
    facts.settings.text("distributed_type")
    if facts.get("cp") is None:
        facts.assume("cp", 1, "the file has no megatron_lm_context_parallel_size (accelerate 1.15 then assumes 2)")
    if facts.get("recompute") is None:
        facts.notes.append("recompute_granularity is not set; accelerate 1.15 then recomputes whole layers")
    if facts.settings.flag(KEY("recompute_activations")):
        facts.assume("recompute", Recompute.SELECTIVE, "by recompute_activations")
    last = facts.settings.whole(KEY("decoder_last_pipeline_num_layers"))
    layers, pp = facts.values.pop("model.layers", None), facts.get("pp", 1)
    if last is None or pp == 1:
        return
    if not isinstance(layers, int) or layers <= last or (layers - last) % (pp - 1):
        raise RequestError(
            f"{facts.source.name}: the last stage has {last} layers, but all layers (--num_layers of the program) are "
            f"{layers}"
        )
    named = split_of((*[(layers - last) // (pp - 1)] * (pp - 1), last), pp=pp, vpp=1)
    assert named is not None  # without virtual stages every split can be named
    facts.values["split"], facts.values["layers_per_stage"] = named


LAUNCHER = read_launcher(NAME, version=VERSION, syntax=document_and_program, adjust=adjust)
LIMITS = (
    *COMMON,
    decoders_only("accelerate's Megatron-LM plugin", hybrids=True),
    *by_keys(LAUNCHER, besides=("recompute", "precision")),
    splits_by_rule("Megatron-LM"),
    Limit(
        broken=lambda launch: not _last_differs(launch),
        reason=lambda launch: "the split: only the last stage can have a number of layers of its own",
        fix=lambda launch: (
            change(launch, split=Split.LIGHT_LAST, layers_per_stage=None)
            if (launch.model.layer_count + 1) % launch.strategy.pp == 0
            else folded(launch, "pp")
        ),
    ),
    only(
        "recompute",
        (Recompute.FULL,),
        "accelerate 1.15 sets recompute_granularity=full by default, and with selective a "
        "recompute_method that contradicts it",
    ),
    precisions(("bf16", "fp16"), "the plugin runs Megatron-LM in bf16 or fp16"),
)
FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, framework="megatron-lm", writes=())
