"""Kinds of launch scripts that people publish: read right, or refused with what would help."""

from typing import Any

import pytest
from launch_files import text_of

from forerun.search.formats import import_texts
from forerun.search.formats.shell import Given
from forerun.spaces.errors import RequestError

TRAINER = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 True"
PLAIN = TRAINER.replace(" --bf16 True", "")
ON_EIGHT = f"torchrun --nproc_per_node 8 tune.py {TRAINER}"
LORA = f"{ON_EIGHT} --lora_r 8"
FACTORY = f"torchrun --nproc_per_node 8 src/train.py --stage sft --template qwen {TRAINER} --deepspeed ds.json"
SWIFT = "NPROC_PER_NODE=4 swift sft --model m --gradient_accumulation_steps 2 --max_length 2048 --deepspeed zero2"
MEGATRON = "pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 8 --micro-batch-size 1 --global-batch-size 32"
GPT = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2"
FACTORS = f"{GPT} --micro-batch-size 1 --global-batch-size 8 --my-sequence-parallel-size"
EXPERTS = (
    "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --pipeline-model-parallel-size 8 --context-parallel-size 2 "
    "--num-experts 128 --num-layers 32 --micro-batch-size 1 --global-batch-size 64 --bf16 --expert-model-parallel-size"
)
CHAT = f"""
OUT=$1
STAGE=$2
if [ "$OUT" == "" ]; then OUT=out; fi
if [ "$STAGE" == "" ]; then STAGE=2; fi
deepspeed --num_gpus 8 main.py {TRAINER} --zero_stage $STAGE --output_dir $OUT
"""
OPENRLHF = """
read -r -d '' words <<EOF
openrlhf.cli.train_sft --max_len 8192 --train_batch_size 256 --micro_train_batch_size 2 --zero_stage 2 --bf16 \\
   --gradient_checkpointing --adam_offload
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --include localhost:0,1,2,3,4,5,6,7 --module $words
fi
"""
HERE = """
read -r -d '' ARGS <<EOF
--tensor-model-parallel-size 4 \\
--num-layers 16
--micro-batch-size 2
--bf16
EOF
torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS --global-batch-size 32
"""
VERL = """
python3 -m verl.trainer.main_ppo data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=512 \\
  trainer.n_gpus_per_node=8 \\
  actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size=16
"""
ARRAYS = """
declare -A C=([pp]=4)
P=(1 2)
(( C[pp] > 2 )) && V='--num-virtual-stages-per-pipeline-rank 2'
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --micro-batch-size 1 --global-batch-size 8 $V \\
  --tensor-model-parallel-size $((P[1] * 1)) --pipeline-model-parallel-size ${C[pp]}
"""
WRITTEN = """
cat > ds.json <<EOF
{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 32, "zero_optimization": {"stage": 1}}
EOF
deepspeed --num_gpus 8 """
ACCELERATE = """
cat > fsdp.yaml <<E
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_sharding_strategy: {}
E
accelerate launch --config_file fsdp.yaml tune.py """
CONTEXT = "accelerate launch --num_processes 8 --use_fsdp --parallelism_config_cp_size 2 tune.py"
UNFORMED = "ep=8 cannot be formed: it divides tp*cp*dp/etp ranks of a stage, of which there are 4"
MAY_ADD = "arguments that it may add are left out"

READ: tuple[tuple[str, str, dict[str, Any], str | None], ...] = (
    # DeepSpeed is given its devices by name; hosts without devices leave their number open.
    (f"deepspeed --include localhost:0,1,2,3 tune.py {TRAINER}", "dp4 mbs2", {"gpus": 4, "global_batch": 32}, None),
    (f"deepspeed --include=localhost:2,3 --master_port 29501 tune.py {TRAINER}", "dp2 mbs2", {"gpus": 2}, None),
    (f"deepspeed --include a01:0,1,2,3,4,5,6,7@a02:0,1,2,3,4,5,6,7 tune.py {TRAINER}", "dp16 mbs2", {"gpus": 16}, None),
    (f"deepspeed -i localhost:0 tune.py {TRAINER}", "dp1 mbs2", {"gpus": 1}, None),
    (f"deepspeed --include a01@a02 tune.py {TRAINER}", "dp1 mbs2", {"gpus": None}, None),
    # Names of settings of several programs.
    (f"{ON_EIGHT} --gradient_checkpointing", "dp8 mbs2 recompute=full", {}, ""),
    (f"{ON_EIGHT} --use_gradient_checkpointing", "dp8 mbs2 recompute=full", {}, ""),
    (f"{SWIFT} --tuner_type full --batch_size 3", "dp4 mbs3 zero2 recompute=full", {"lora": None}, ""),
    (f"{SWIFT} --train_type full", "dp4 mbs1 zero2 recompute=full", {"lora": None}, ""),
    (f"{SWIFT} --sft_type lora --lora_rank 4", "dp4 mbs1 zero2 recompute=full", {"lora": "4:attention+mlp"}, ""),
    (SWIFT, "dp4 mbs1 zero2 recompute=full", {"lora": "8:attention+mlp"}, ""),
    (FACTORY, "dp8 mbs2 recompute=full", {}, ""),
    (f"{FACTORY} --disable_gradient_checkpointing true", "dp8 mbs2", {}, ""),
    (OPENRLHF, "dp8 mbs2 zero2 recompute=full", {"global_batch": 256, "seq_len": 8192}, "optimizer-offload"),
    (VERL, "dp8 mbs2 zero3 recompute=full", {}, ""),  # a micro-batch of all devices
    (f"{GPT} --batch-size 4 --num-layers 8 --ds-sequence-parallel-size 2", "tp2 dp2 cp2 mbs4", {}, "Ulysses"),
    (f"{FACTORS} 1", "tp2 dp4 mbs1", {}, None),  # a degree of another tool, which is one
    # Matrices in few bits, and an option without its value.
    *((f"{LORA} {bits}", "dp8 mbs2", {}, "four or eight bit") for bits in ("--bits 4", "--load_in_4bit true")),
    *((f"{LORA} {bits}", "dp8 mbs2", {}, "four or eight bit") for bits in ("--load_in_8bit", "--quantization_bit 8")),
    (f"{LORA} --bits 16 --load_in_4bit false", "dp8 mbs2", {}, ""),
    (f"{LORA} --lora_target_modules", "dp8 mbs2", {"lora": "8:attention+mlp"}, ""),
    # Configurations: named beside arguments, or written by the script.
    (f"{GPT} --config-file a.yaml b.yaml", "tp2 dp4 mbs1", {}, "a.yaml, b.yaml may decide more"),
    (f"{GPT} --cli-arg-yaml-cfgs a.yaml b.yaml", "tp2 dp4 mbs1", {}, "a.yaml, b.yaml may decide more"),
    (f"{WRITTEN} own.py --deepspeed_config ds.json", "dp8 mbs2 zero1", {}, ""),
    (f"{WRITTEN} tune.py {TRAINER} --deepspeed ds.json", "dp8 mbs2 zero1", {}, ""),
    (f"{ACCELERATE.format('FULL_SHARD')}{PLAIN}", "dp8 mbs2 zero3", {"precision": "bf16"}, ""),
    (f"{ACCELERATE.format('SHARD_GRAD_OP')}{PLAIN}", "dp8 mbs2 zero2", {"precision": "bf16"}, ""),
    # What a script leaves open is noted, whoever reads it.
    (CHAT, "dp8 mbs2 zero2", {}, "without arguments"),
    (f"if [ -f x ]; then MORE=--gradient_checkpointing; fi\n{ON_EIGHT} $MORE", "dp8 mbs2", {}, "left out"),
    (f"MORE=$(python options.py)\n{ON_EIGHT} $MORE", "dp8 mbs2", {}, MAY_ADD),
    (f"MORE='--per_device_train_batch_size 2'\n{ON_EIGHT} $MORE", "dp8 mbs2", {}, ""),
    (f"MORE='--per_device_train_batch_size 4'\n{ON_EIGHT} $MORE", "dp8 mbs4", {}, "is given twice"),
    (f"{ON_EIGHT}\ntorchrun --nproc_per_node 4 b.py {TRAINER} --x 1", "dp4 mbs2", {}, "starts 2 runs"),
    (f"{ON_EIGHT}\n{ON_EIGHT}", "dp8 mbs2", {}, ""),
    (
        f"{EXPERTS} 8",
        "pp8 dp2 cp2 ep8 mbs1",
        {},
        UNFORMED,
    ),
    (f"{EXPERTS} 4", "pp8 dp2 cp2 ep4 mbs1", {}, ""),
    (HERE, "tp4 dp2 mbs2", {"precision": "bf16"}, ""),
    (ARRAYS, "tp2 pp4 dp1 mbs1 vpp2 schedule=interleaved", {}, None),
    # Devices of a launcher are its processes.
    (f"python ../gaudi_spawn.py --world_size 8 --use_deepspeed tune.py {TRAINER}", "dp8 mbs2", {"gpus": 8}, ""),
    *((f"{before}{CONTEXT} {TRAINER}", "dp4 cp2 mbs2 zero3", {}, "") for before in ("", "srun ", "srun --nodes 1 ")),
    (f"mpirun -np 16 -H a:8,b:8 python {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"mpiexec -n 16 -ppn 8 python3 {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"srun --ntasks=16 --gpus-per-task=1 python {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"srun -u -n16 -c2 --gpus-per-node=8 python {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"srun -N 2 --ntasks-per-node=8 --gpus-per-node=8 python {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"srun -n 2 torchrun --nnodes 2 --nproc_per_node 8 {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"srun -N 2 -n 2 torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"torchrun --nnodes=1:4 --nproc-per-node=8 {MEGATRON}", "tp2 dp1 mbs1", {"gpus": None}, ""),
    (f"torchrun --nnodes=2:2 --nproc-per-node=8 {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
    (f"srun --nodes=8 --ntasks-per-node=8 ./bind.sh python {MEGATRON}", "tp2 dp32 mbs1", {"gpus": 64}, ""),
    (f"srun -N 2 --ntasks-per-node=1 --gpus-per-node=4 python {MEGATRON}", "tp2 dp4 mbs1", {"gpus": 8}, ""),
    (
        f"#SBATCH -N 4 --gpus=32\ntorchrun --nnodes 4 --nproc_per_node $((SLURM_GPUS / 4)) {MEGATRON}",
        "tp2 dp16 mbs1",
        {},
        "",
    ),
    (f"#SBATCH -N 4 -G 16\nsrun python {MEGATRON}", "tp2 dp8 mbs1", {"gpus": 16}, ""),
)
"""Scripts with the strategy and facts that are read, and a note (empty: no note, None: any)."""


@pytest.mark.parametrize(("script", "strategy", "facts", "note"), READ)
def test_a_script_is_read_as_it_runs(script: str, strategy: str, facts: dict[str, Any], note: str | None) -> None:
    imported = import_texts({"a.sh": f"{script}\n"})

    assert str(imported.strategy).replace("tp1 ", "").replace("pp1 ", "") == strategy
    assert {name: imported.workload.get(name) for name in facts} == facts
    assert note is None or (any(note in text for text in imported.notes) if note else not imported.notes)


OWN = "srun torchrun --nnodes 2 --nproc_per_node 8 my_trainer.py"
TITAN = "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file a.toml"
REFUSED = (
    (
        "TP=2\n. `pwd`/CONFIG.sh\nsrun bash -c 'bash examples/train.sh'",
        r"starts or reads CONFIG.sh, train.sh: import that",
    ),
    (
        "GPUS=0,1 accelerate launch \\\n  src/train.py my/sft.yaml",
        r"starts or reads sft\.yaml: import that",
    ),
    (
        "srun torchrun --nproc_per_node 8 $TRAINER --x $1",
        r"starts \$TRAINER, which it does not set: give --set-var TRAINER=",
    ),
    (f"{TITAN} --parallelism.tensor_parallel_degree 4", r"import the TOML that --job\.config_file names"),
    ("TP=$1\ntorchrun --nproc_per_node 8 x.py --tensor-model-parallel-size $TP", "started with after --"),
    ("torchrun --nproc_per_node 8 pretrain_gpt.py --config conf/a.yaml", r"leaves its arguments to conf/a\.yaml"),
    (f"{FACTORS} 2", "its degrees would be lost"),
    *(
        (f"{ON_EIGHT} --{name} 4", f"{name}, which hf-trainer does not")
        for name in ("sp_size", "ulysses_parallel_size")
    ),
    ("accelerate launch -m axolotl.cli.train examples/8b.yaml", "8b.yaml"),
    ("srun python3 -m fairseq.train --batch-size 8", "starts fairseq.train"),
    ("torchrun src/own.py --batch 8", r"starts src/own\.py, .* import it with this script beside it"),
    ("torchrun -m torchtitan.train --module llama3 --config llama3_8b", r"config_registry\.py of its --module"),
    (ARRAYS.replace("torchrun", "(( P[1]++ ))\ntorchrun"), "P"),  # an element that changes is no longer known
    (f"{OWN} --num_layers 24 --width 2048 --batch 4 --shard full --context 4096", "states no degree and no batch"),
    ("L=$1\necho 'usage: sbatch job.slurm --config X'\nsrun $L", r"starts \$1, .* arguments of the script after --"),
)


@pytest.mark.parametrize(("script", "message"), REFUSED)
def test_a_script_that_says_too_little_is_refused_with_what_would_help(script: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        import_texts({"a.sh": f"{script}\n"})


def test_arguments_and_variables_of_the_user_decide() -> None:
    script = "N=$(nvidia-smi -L | wc -l)\nGB=$(( $(($N * 2)) * $(( 2 + 2 )) ))\n"
    script += "torchrun --nproc_per_node $N pretrain_gpt.py --micro-batch-size 2 --global-batch-size $GB\n"
    chat = import_texts({"a.sh": CHAT}, given=Given(arguments=("out", "3")))

    assert chat.strategy.zero == 3 and not chat.notes
    assert import_texts({"a.sh": script}, given=Given(variables={"N": "8"})).workload["global_batch"] == 64
    with pytest.raises(RequestError, match="--set-var N="):
        import_texts({"a.sh": script})


def test_arguments_of_a_script_overrule_the_file_that_it_names() -> None:
    toml = "[training]\nlocal_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 1\n"
    script = f"{TITAN} --parallelism.tensor_parallel_degree 4 --training.local_batch_size=2\n"
    found = import_texts({"a.toml": toml, "run.sh": script}).strategy
    sharded = import_texts({"ds.json": '{"zero_optimization": {"stage": 3}}', "a.sh": f"{FACTORY}\n"}).strategy

    assert (found.tp, found.dp, found.mbs) == (4, 2, 2)
    assert (sharded.zero, sharded.mbs) == (3, 2)


def test_attention_inside_documents_is_named_as_the_file_has_it() -> None:
    text = (
        "from torchtitan.models.llama3 import model_registry\n\n\ndef mine():\n"
        '    spec = model_registry("8B", attn_backend="varlen")\n'
        "    return Trainer.Config(model_spec=spec, training=TrainingConfig(local_batch_size=2, seq_len=8192),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=2))\n"
    )
    notes = import_texts({"a.py": text}, gpus=8).notes

    assert any(note.startswith('attn_backend="varlen" keeps attention inside documents') for note in notes)


def test_weights_in_fp32_under_autocast_are_said() -> None:
    nemo = text_of("NeMo: precision 32").replace("precision: 32", "precision: bf16")
    (note,) = import_texts({"a.yaml": nemo + "  megatron_amp_O2: false\n"}).notes

    assert "megatron_amp_O2" in note
    assert not import_texts({"a.yaml": nemo + "  megatron_amp_O2: true\n"}).notes
