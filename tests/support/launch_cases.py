"""Launch files of many tools with what they say."""

from launch_case import Case
from launch_texts import (
    AXOLOTL,
    COLOSSAL,
    DEEPSPEED,
    FACTORY,
    LEVANTER,
    MAXTEXT,
    NEOX,
    OLMO,
    OLMO_CORE,
    SWIFT,
    VERL,
)
from megatron_launch_cases import MEGATRON_CASES
from trainer_launch_cases import TRAINER_CASES

CASES = {
    "neox": Case({"a.yml": NEOX}, "gpt-neox", "tp2 pp4 dp12 mbs4 zero1 recompute=full", 1536, 2048, "fp16", 96),
    "neox, two files": Case(
        {"local.yml": '{"num_gpus": 8, "num_nodes": 2, "gradient_accumulation_steps": 32}', "a.yml": NEOX},
        "gpt-neox",
        "tp2 pp4 dp2 mbs4 zero1 recompute=full",
        256,
        2048,
        "fp16",
    ),
    "neox, no pipeline": Case(
        {"a.yml": NEOX.replace('size": 4, "model', 'size": 0, "model')},
        "gpt-neox",
        "tp2 dp8 mbs4 zero1 recompute=full",
        1024,
        2048,
        "fp16",
        16,
    ),
    "axolotl, replicas": Case({"a.yml": AXOLOTL}, "axolotl", "dp8 mbs2", 64, 4096, "bf16", 8),
    "axolotl, hybrid": Case(
        {
            "a.yml": AXOLOTL
            + "dp_shard_size: 4\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: "
            "false}\ngradient_checkpointing: offload\n"
        },
        "axolotl",
        "tp2 dp8 mbs2 zero2 shard=4 recompute=full",
        64,
        4096,
        "bf16",
        16,
    ),
    "axolotl, fsdp 1": Case(
        {"a.yml": AXOLOTL + "fsdp: [full_shard, auto_wrap]\ncontext_parallel_size: 2\n"},
        "axolotl",
        "dp4 cp2 mbs2 zero3",
        32,
        4096,
        "bf16",
        8,
    ),
    "axolotl, experts": Case(
        {"a.yml": AXOLOTL + "expert_parallel_size: 2\ndp_shard_size: 2\nfsdp_config: {reshard_after_forward: true}\n"},
        "axolotl",
        "dp4 ep2 mbs2 zero3",
        32,
        4096,
        "bf16",
        4,
    ),
    "llama-factory, named zero": Case(
        {"a.yaml": FACTORY + "deepspeed: examples/deepspeed/ds_z3_config.json\n"},
        "llama-factory",
        "dp8 mbs1 zero3 recompute=full",
        16,
        2048,
        "bf16",
        8,
    ),
    "llama-factory, given zero": Case(
        {"a.yaml": FACTORY + "deepspeed: my_z3.json\ndisable_gradient_checkpointing: true\n", "my_z3.json": DEEPSPEED},
        "llama-factory",
        "dp8 mbs1 zero2",
        16,
        2048,
        "bf16",
        8,
    ),
    "llama-factory, a node by command": Case(
        {"a.yaml": FACTORY, "run.sh": "NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train a.yaml\n"},
        "llama-factory",
        "dp16 mbs1 recompute=full",
        32,
        2048,
        "bf16",
    ),
    "llama-factory, arguments": Case(
        {
            "run.sh": "NPROC_PER_NODE=8 llamafactory-cli train \\\n --stage sft --do_train --finetuning_type full \\\n"
            " --cutoff_len 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --bf16\n"
        },
        "llama-factory",
        "dp8 mbs1 recompute=full",
        16,
        2048,
        "bf16",
    ),
    "axolotl, two spellings": Case(
        {"a.yaml": "base_model: x\nsequence_len: 4096\nmicro_batch_size: 2\nfp16: false\nfloat16: true\n"},
        "axolotl",
        "dp4 mbs2",
        8,
        4096,
        "fp16",
        4,
    ),
    "llama-factory, megatron": Case(
        {
            "a.yaml": FACTORY
            + "pipeline_model_parallel_size: 4\nexpert_model_parallel_size: 2\nrecompute_granularity: full\n"
            "use_distributed_optimizer: true\nsequence_parallel: false\n"
        },
        "llama-factory",
        "pp4 dp2 ep2 mbs1 zero1 recompute=full",
        4,
        2048,
        "bf16",
        8,
    ),
    "llama-factory, v1": Case(
        {
            "a.yaml": "model: some\ntemplate: x\ncutoff_len: 2048\nmicro_batch_size: 1\n"
            "dist_config: {name: fsdp2, cp_mode: ulysses, cp_size: 2}\ntrain_dataset: y\n"
        },
        "llama-factory",
        "dp4 cp2 mbs1 zero3 recompute=full",
        4,
        2048,
        "bf16",
        8,
    ),
    "olmo": Case({"a.yaml": OLMO}, "olmo", "dp256 mbs2 zero3 recompute=full", 2048, 4096, "bf16", 256),
    "olmo, replicas": Case(
        {"a.yaml": OLMO.replace("whole_layer", "null") + "distributed_strategy: ddp\n"},
        "olmo",
        "dp64 mbs2",
        2048,
        4096,
        "bf16",
        64,
    ),
    "olmo-core": Case(
        {"a.py": OLMO_CORE}, "olmo-core", "tp2 dp64 mbs2 zero3 shard=32 sp recompute=selective", 512, 8192, "bf16", 128
    ),
    "olmo-core, overrides": Case(
        {
            "a.py": OLMO_CORE,
            "run.sh": "torchrun --nproc-per-node=8 --nnodes=16 a.py train x --train_module.rank_microbatch_size="
            "8192 --train_module.tp_config.degree=1\n",
        },
        "olmo-core",
        "dp128 mbs1 zero3 shard=32 recompute=selective",
        512,
        8192,
        "bf16",
    ),
    "levanter": Case({"a.yaml": LEVANTER}, "levanter", "tp2 dp32 mbs4 zero3", 1024, 4096, "bf16", 64),
    "levanter, all at once": Case(
        {"a.yaml": LEVANTER.replace("parallelism: 4", "parallelism: -1")},
        "levanter",
        "tp2 dp32 mbs32 zero3",
        1024,
        4096,
        "bf16",
        64,
    ),
    "verl, megatron": Case(
        {
            "a.sh": VERL + "  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 "
            "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2\n"
        },
        "verl",
        "tp2 pp2 dp4 mbs2 zero1 sp",
        512,
        4096,
        "bf16",
    ),
    "verl, fsdp": Case(
        {
            "a.sh": VERL + "  actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 "
            "actor_rollout_ref.actor.fsdp_config.fsdp_size=-1\n"
        },
        "verl",
        "dp8 cp2 mbs2 zero3 recompute=full",
        512,
        4096,
        "bf16",
    ),
    "maxtext, one slice": Case(
        {"a.sh": MAXTEXT + "per_device_batch_size=4 remat_policy=minimal compile_topology=v5p-512\n"},
        "maxtext",
        "dp256 mbs4 zero3 recompute=selective",
        1024,
        4096,
        "bf16",
    ),
    "maxtext, arguments": Case(
        {
            "a.sh": "TENSOR=${1:-4}\n" + MAXTEXT + "ici_tensor_parallelism=$TENSOR dcn_data_parallelism=2 "
            "ici_fsdp_parallelism=-1 per_device_batch_size=0.5 remat_policy=full\n"
        },
        "maxtext",
        "tp8 dp16 mbs4 zero3 shard=8 recompute=full",
        64,
        4096,
        "bf16",
        128,
        None,
        ("8",),
    ),
    "maxtext, yaml": Case(
        {
            "a.yml": "base_config: base.yml\nper_device_batch_size: 2\nmax_target_length: 8192\n"
            "ici_fsdp_parallelism: 16\nici_expert_parallelism: 4\nremat_policy: none\n"
        },
        "maxtext",
        "dp64 ep4 mbs2 zero3",
        128,
        8192,
        "bf16",
        64,
    ),
    "colossalai": Case(
        {"a.sh": COLOSSAL + "--plugin 3d --tp 4 --pp 2 --zero 1 --mbs 2 --mixed_precision bf16\n"},
        "colossalai",
        "tp4 pp2 dp4 mbs2 zero1 recompute=full",
        64,
        4096,
        "bf16",
        32,
    ),
    "colossalai, gemini": Case(
        {"a.sh": COLOSSAL.replace("--hostfile hosts ", "") + "-p gemini\n"},
        "colossalai",
        "dp8 mbs16 zero3 recompute=full",
        128,
        4096,
        "bf16",
    ),
    "ms-swift": Case(
        {
            "a.sh": SWIFT
            + "--deepspeed zero2 --per_device_train_batch_size 1 --gradient_accumulation_steps $(expr 32 / 8) "
            "--max_length 8192\n"
        },
        "ms-swift",
        "dp8 mbs1 zero2 recompute=full",
        32,
        8192,
        "bf16",
    ),
    "ms-swift, megatron": Case(
        {
            "a.sh": "NNODES=2 NPROC_PER_NODE=4 megatron sft --tensor_model_parallel_size 4 --sequence_parallel true "
            "--max_length 8192\n"
        },
        "ms-swift-megatron",
        "tp4 dp2 mbs1 zero1 sp recompute=selective",
        16,
        8192,
        "bf16",
    ),
    "axolotl, checkpointing by FSDP": Case(
        {"a.yml": AXOLOTL + "fsdp: [full_shard]\nfsdp_config: {fsdp_activation_checkpointing: true}\n"},
        "axolotl",
        "dp8 mbs2 zero3 recompute=full",
        64,
        4096,
        "bf16",
        8,
    ),
    "verl, a configuration": Case(
        {
            "a.yaml": "actor_rollout_ref:\n  actor:\n    strategy: fsdp\n    ppo_mini_batch_size: 32\n"
            "    ppo_micro_batch_size_per_gpu: 2\n    ulysses_sequence_parallel_size: 2\n"
            "    fsdp_config: {fsdp_size: -1}\n"
            "data: {max_prompt_length: 1024, max_response_length: 3072}\n"
            "trainer: {nnodes: 2, n_gpus_per_node: 8}\n"
        },
        "verl",
        "dp8 cp2 mbs2 zero3 recompute=full",
        32,
        4096,
        "bf16",
    ),
    "mindspeed, fsdp 2": Case(
        {
            "a.sh": "NPUS_PER_NODE=16\ntorchrun --nproc_per_node $NPUS_PER_NODE --nnodes 2 train_fsdp2.py qwen.yaml "
            "--parallel.fsdp_size 16 --training.per_device_train_batch_size 1 "
            "--training.gradient_accumulation_steps 4 --parallel.recompute True --data.cutoff_len 4096 | tee log\n"
        },
        "mindspeed-fsdp2",
        "dp32 mbs1 zero3 shard=16 recompute=full",
        128,
        4096,
        "bf16",
    ),
    "colossal-ai, a distribution plan": Case(
        {
            "a.sh": "export GPUNUM=${GPUNUM:-4}\nexport PLAN=${PLAN:-zero2}\ntorchrun --standalone "
            "--nproc_per_node=${GPUNUM} train_gpt_demo.py --tp_degree=${TP:-2} --batch_size=16 --distplan ${PLAN}\n"
        },
        "colossalai",
        "tp2 dp2 mbs16 zero2",
        32,
        None,
        "bf16",
    ),
    **MEGATRON_CASES,
    **TRAINER_CASES,
}
