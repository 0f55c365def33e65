"""Launch files of kinds that were once misread say what their tools would run, or are refused by name."""

from typing import Any

import pytest

from forerun.search.formats import Imported, import_texts
from forerun.search.formats.shell import Given
from forerun.spaces.errors import RequestError

VERL = (
    "python3 -m verl.trainer.main_ppo data.train_batch_size=64 data.max_prompt_length=1024 "
    "data.max_response_length=3072 actor_rollout_ref.actor.ppo_mini_batch_size=32 trainer.n_gpus_per_node=8 "
    "trainer.nnodes=2 actor_rollout_ref.actor.{}\n"
)
ACTOR = "actor_rollout_ref.actor."
NEMO = (
    "trainer: {devices: 8, num_nodes: 2, precision: bf16}\nmodel:\n  encoder_seq_length: 4096\n  num_layers: 32\n"
    "  micro_batch_size: 1\n  global_batch_size: 64\n  tensor_model_parallel_size: 2\n"
    "  pipeline_model_parallel_size: 1\n"
)
PRIMUS = (
    "modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n      micro_batch_size: 2\n"
    "      global_batch_size: 64\n      seq_length: 4096\n      tensor_model_parallel_size: 2\n"
)
TRL = (
    "model_name_or_path: x/y\ntorch_dtype: bfloat16\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
    "max_length: 8192\ngradient_checkpointing: true\npacking: true\n"
)
ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n"
    "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
)
FACTORY = (
    "torchrun --nproc_per_node 4 src/train.py --stage sft --finetuning_type lora --lora_rank 16 --cutoff_len 2048 "
    "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --bf16 True --deepspeed ds_config.json\n"
)
AUTO = (
    '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'
)
MEGATRON = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size 1 "
    "--pipeline-model-parallel-size 8 --context-parallel-size 2 --num-experts 128 --num-layers 32 "
    "--micro-batch-size 1 --global-batch-size 64 --bf16 --expert-model-parallel-size {}\n"
)

KINDS: dict[str, tuple[dict[str, str], str, dict[str, Any]]] = {
    "veRL: fsdp_size counts the ranks that Ulysses divides": (
        {
            "a.sh": VERL.format(
                f"ppo_micro_batch_size_per_gpu=1 {ACTOR}ulysses_sequence_parallel_size=4 "
                f"{ACTOR}fsdp_config.fsdp_size=16"
            )
        },
        "tp1 pp1 dp4 cp4 mbs1 zero3 recompute=full",
        {"gpus": 16, "seq_len": 4096},
    ),
    "veRL: Megatron has sequence parallelism": (
        {"a.sh": VERL.format(f"megatron.tensor_model_parallel_size=4 {ACTOR}ppo_micro_batch_size_per_gpu=1")},
        "tp4 pp1 dp4 mbs1 zero1 sp",
        {"gpus": 16},
    ),
    "veRL: sequence parallelism that is off": (
        {
            "a.sh": VERL.format(
                f"megatron.tensor_model_parallel_size=4 {ACTOR}ppo_micro_batch_size_per_gpu=1 "
                f"{ACTOR}megatron.sequence_parallel=False"
            )
        },
        "tp4 pp1 dp4 mbs1 zero1",
        {"gpus": 16},
    ),
    "veRL: microbatches of tokens": (
        {
            "a.sh": "python3 -m verl.trainer.main_ppo data.train_batch_size=512 actor_rollout_ref.rollout.n=5 "
            "data.max_prompt_length=512 data.max_response_length=512 "
            f"{ACTOR}ppo_mini_batch_size=512 {ACTOR}use_dynamic_bsz=True {ACTOR}ppo_max_token_len_per_gpu=24000 "
            "trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
        },
        "tp1 pp1 dp8 mbs20 zero3 recompute=full",
        {"global_batch": 2560},
    ),
    "TRL's YAML": ({"a.yaml": TRL}, "tp1 pp1 dp1 mbs2 recompute=full", {"seq_len": 8192, "precision": "bf16"}),
    "TRL's YAML with accelerate's": (
        {"a.yaml": TRL, "zero.yaml": ACCELERATE},
        "tp1 pp1 dp8 mbs2 zero3 recompute=full",
        {"gpus": 8, "global_batch": 64, "seq_len": 8192, "precision": "bf16"},
    ),
    "LLaMA-Factory's words under torchrun": (
        {"a.sh": FACTORY},
        "tp1 pp1 dp4 mbs2",
        {"lora": "16:attention+mlp", "seq_len": 2048, "precision": "bf16", "global_batch": 64},
    ),
    "LLaMA-Factory's words with DeepSpeed's file": (
        {"a.sh": FACTORY, "ds_config.json": AUTO},
        "tp1 pp1 dp4 mbs2 zero3",
        {"lora": "16:attention+mlp", "seq_len": 2048, "precision": "bf16", "global_batch": 64},
    ),
    "accelerate: a stage by the name of DeepSpeed's file": (
        {
            "a.sh": "accelerate launch --mixed_precision bf16 --num_processes 8 --use_deepspeed "
            "--deepspeed_config_file conf/stage3_plain.conf train.py --per_device_train_batch_size 2 "
            "--gradient_accumulation_steps 2\n"
        },
        "tp1 pp1 dp8 mbs2 zero3",
        {"gpus": 8, "global_batch": 32},
    ),
    "Primus: bf16 is in its base file": ({"a.yaml": PRIMUS}, "tp2 pp1 dp1 mbs2", {"precision": "bf16"}),
    "NeMo: precision 32": (
        {"a.yaml": NEMO.replace("precision: bf16", "precision: 32")},
        "tp2 pp1 dp8 mbs1",
        {"precision": "fp32"},
    ),
    "NeMo: references within the file": (
        {
            "a.yaml": NEMO + '  data: {seq_length: "${model.encoder_seq_length}"}\n'
            '  cpu_offloading_num_layers: "${sum:${.num_layers},-1}"\n'
        },
        "tp2 pp1 dp8 mbs1",
        {"precision": "bf16", "seq_len": 4096},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_says_what_its_tool_would_run(name: str) -> None:
    files, strategy, workload = KINDS[name]

    found = import_texts(files)

    assert str(found.strategy) == strategy
    assert {key: found.workload.get(key) for key in workload} == workload
    assert not found.unknown


def test_a_trainer_of_ones_own_is_refused() -> None:
    script = (
        "srun torchrun --nnodes 2 --nproc_per_node 8 my_trainer.py --num_layers 24 --width 2048 --batch 4 --shard full "
        "--dtype bf16 --context 4096\n"
    )

    with pytest.raises(RequestError, match="states no degree and no batch"):
        import_texts({"a.sh": script})


def read(ep: int) -> Imported:
    return import_texts({"a.sh": MEGATRON.format(ep)})


def test_a_degree_that_cannot_be_formed_is_named() -> None:
    assert any("ep=8 cannot be formed" in note and "there are 4" in note for note in read(8).notes)
    assert not any("cannot be formed" in note for note in read(4).notes)


def test_weights_in_fp32_under_autocast_are_said() -> None:
    assert any(
        "megatron_amp_O2" in note for note in import_texts({"a.yaml": NEMO + "  megatron_amp_O2: false\n"}).notes
    )
    assert not import_texts({"a.yaml": NEMO + "  megatron_amp_O2: true\n"}).notes


def test_a_launcher_from_an_argument_is_asked_for() -> None:
    script = (
        '#!/bin/bash\nLAUNCHER=$1\nif [ -z "$1" ]; then echo "usage: sbatch job.slurm --config X"; fi\nsrun $LAUNCHER\n'
    )

    with pytest.raises(RequestError, match=r"starts \$1, .* give the arguments of the script after --"):
        import_texts({"job.slurm": script}, given=Given())
