"""Software whose launch scripts have Megatron-LM's arguments, or YAML files with a section of them.

Scripts: ms-swift's ``megatron``, slime and Pai-Megatron-Patch. YAML: its own functional tests and AMD Primus.

Sources: ``swift/megatron/arguments/megatron_args.py`` of ms-swift 4.6.0; ``megatron_patch/arguments.py`` of
Pai-Megatron-Patch.
"""

import re
from collections.abc import Callable

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.megatron_lm import in_section, megatron
from forerun.search.formats.syntax import is_script, is_yaml


def _marked(written: Callable[[LaunchFile], bool], mark: str) -> Callable[[LaunchFile], bool]:
    pattern = re.compile(mark, re.MULTILINE)
    return lambda source: written(source) and pattern.search(source.text) is not None


MS_SWIFT = megatron(
    title="ms-swift with Megatron-core",
    marks=_marked(is_script, r"(^|\s)megatron\s+(sft|pt|rlhf)\b"),
    name="ms-swift-megatron",
    version="4",
    renamed={"max_length": "seq_length"},
    assumed={
        "micro_batch_size": "1",
        "global_batch_size": "16",
        "recompute_granularity": "selective",
        "use_distributed_optimizer": True,
        "moe_token_dispatcher_type": "alltoall",
        "bf16": True,
    },
    valued=True,
    says={"tuner_type": "{value} is trained; a strategy is of training all parameters"},
)
PAI = megatron(
    title="Pai-Megatron-Patch",
    marks=_marked(is_script, r"--patch-tokenizer-type|PAI-Megatron|Megatron-Patch|--extra-vocab-size"),
    name="pai-megatron-patch",
    version="0.11",
)


SLIME = megatron(
    title="slime",
    marks=_marked(is_script, r"--actor-num-(nodes|gpus-per-node)"),
    name="slime",
    version="0.2",
    assumed={"bf16": True},
    says={"max_tokens_per_gpu": "micro-batches of up to {value} tokens are read as mbs=1"},
)
TESTS = megatron(
    title="Megatron-LM's functional tests",
    marks=_marked(is_yaml, r"^MODEL_ARGS:"),
    name="megatron-lm-test",
    version="0.20",
    syntax=in_section("MODEL_ARGS."),
)
PRIMUS = megatron(
    title="AMD Primus",
    marks=_marked(is_yaml, r"^[ \t]+pre_trainer:"),
    name="primus",
    version="0.2",
    syntax=in_section("modules.pre_trainer.overrides."),
    assumed={"bf16": True},
)
FORMATS = tuple(map(format_of, (TESTS, PRIMUS, SLIME, MS_SWIFT, PAI)))
"""Formats in the order of recognition."""
