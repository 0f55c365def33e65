"""GPT-NeoX 2: YAML files that a run takes together (``deepy.py train.py 20B.yml local_setup.yml``).

Source: ``megatron/neox_arguments/neox_args.py`` and ``deepspeed_args.py`` of EleutherAI/gpt-neox: names
have dashes or underscores, a pipeline of 0 stages is one of 1, replicas fill the devices.
"""

import re

from forerun.search.formats.keys import RECOMPUTED, YES, Launcher, LaunchFacts, LaunchKey, switched_on
from forerun.search.formats.syntax import documents

HARMLESS = re.compile(
    r"optimizer|scheduler|zero_|steps_per|wall_clock|fp16|bf16|fp32|amp|tokenizer|vocab|merge_file|save|load|data|train_|"
    r"valid_|test_|label_data|split|norm|layernorm|rms_|pos_emb|rotary|no_weight|gpt_j|output_layer|activation|attention|"
    r"sparsity|scaled_|bias_|rope|init_|use_|min_lr|lr_|weight_decay|hidden_dropout|gradient_|warmup|distributed_|eval|"
    r"log|tensorboard|wandb|comet|keep_|checkpoint_|partition_|synchronize|contiguous|hostfile|launcher|deepspeed|master|"
    r"make_vocab|override|finetune|iteration|text_gen|sample|temperature|top_|maximum|return_|recompute|include|exclude|"
    r"pipe_partition|global_num|user_|local_|detect|comment|seed|clip|short_seq|num_workers|mup|coord|moe_|expert|num_layers|"
    r"intermediate|ffn|apply_|masked_|mmap|mem|profile|autotuning|flops|comms|curriculum|adlr|softmax|soft_prompt|"
    r"extra_save|s3_|git|rank|is_|do_|dynamic|batch_size|world|char|cpu_|no_ssh|force_multi|sliding|pack|reset|onnx|"
    r"transformer_|te_|mamba|rwkv|lion|adam|sgd|opt_pos|hysteresis|prescale|communication|allreduce|separated|norm_|"
    r"hidden_size|max_pos|qk_|layer_|enforce|routing|dmoe|params_dtype|omit|preference|kto|dpo|rm_|reward|parallel_output|causal"
)


def adjust(facts: LaunchFacts) -> None:
    """Say what the checkpointing of several layers at once is read as."""
    layers = facts.settings.whole("checkpoint_num_layers", least=0)
    if facts.get("recompute") and (layers or 1) > 1:
        facts.notes.append(f"recompute from every layer number {layers} is read as recompute=full: from every layer")
    if facts.settings.flag("partition_activations") and facts.get("recompute"):
        facts.notes.append(
            "partition_activations shares saved activations out over tensor ranks; not part of a strategy"
        )


LAUNCHER = Launcher(
    name="gpt-neox",
    version="2",
    title="GPT-NeoX",
    keys=(
        LaunchKey(names=("pipe_parallel_size",), decides="pp", least=0),
        LaunchKey(names=("model_parallel_size",), decides="tp", least=0),
        LaunchKey(names=("context_parallel_size",), decides="cp"),
        LaunchKey(names=("moe_expert_parallel_size",), decides="ep"),
        LaunchKey(names=("sequence_parallel",), decides="sp", words=YES),
        LaunchKey(
            names=("train_micro_batch_size_per_gpu",), decides="mbs", meaning="sequences of a replica and microbatch"
        ),
        LaunchKey(names=("gradient_accumulation_steps", "gas"), decides="accumulation"),
        LaunchKey(names=("train_batch_size",), decides="global_batch"),
        LaunchKey(names=("seq_length",), decides="seq_len"),
        LaunchKey(
            names=("zero_optimization.stage", "zero_stage"),
            decides="zero",
            words={str(stage): stage for stage in range(4)},
        ),
        LaunchKey(names=("checkpoint_activations",), decides="recompute", words=RECOMPUTED),
        LaunchKey(
            names=("precision",),
            decides="precision",
            words={"bfloat16": "bf16", "bf16": "bf16", "fp16": "fp16", "float16": "fp16", "fp32": "fp32", "none": None},
        ),
        LaunchKey(
            names=("bf16.enabled",), decides="precision", meaning="training in bfloat16", words=switched_on("bf16")
        ),
        LaunchKey(
            names=("fp16.enabled",), decides="precision", meaning="training in float16", words=switched_on("fp16")
        ),
        LaunchKey(names=("num_nodes",), decides="nodes", meaning="nodes that are started", least=-1),
        LaunchKey(names=("num_gpus",), decides="devices_per_node"),
        LaunchKey(names=("num_layers",), decides="model.layers"),
        LaunchKey(names=("hidden_size",), decides="model.hidden"),
        LaunchKey(names=("num_attention_heads",), decides="model.heads"),
        LaunchKey(names=("num_kv_heads",), decides="model.kv_heads"),
        LaunchKey(names=("num_experts", "moe_num_experts"), decides="model.experts"),
    ),
    syntax=documents,
    marks=lambda source: (
        source.suffix in (".yml", ".yaml", ".json")
        and re.search(r"[\"']?(pipe[-_]parallel[-_]size)[\"']?\s*:", source.text) is not None
    ),
    harmless=lambda name: HARMLESS.match(name) is not None,
    adjust=adjust,
)
