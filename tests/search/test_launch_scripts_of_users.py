"""Kinds of launch scripts that people publish: read right, or refused with what would help."""

import pytest

from forerun.search.formats import import_texts
from forerun.search.formats.shell import Given
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute

TRAINER = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 True"
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
tensor_parallel_degree = 1
"""


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("deepspeed --include localhost:0,1,2,3", 4),
        ("deepspeed --include=localhost:2,3 --master_port 29501", 2),
        ("deepspeed --include a01:0,1,2,3,4,5,6,7@a02:0,1,2,3,4,5,6,7", 16),
        ("deepspeed -i localhost:0", 1),
    ],
)
def test_devices_that_deepspeed_is_given_by_name_are_counted(launcher: str, gpus: int) -> None:
    found = import_texts({"a.sh": f"{launcher} tune.py {TRAINER} --deepspeed zero3.json\n"})

    assert found.workload["gpus"] == gpus == found.strategy.dp
    assert found.workload["global_batch"] == 8 * gpus


def test_hosts_without_devices_leave_their_number_open() -> None:
    found = import_texts({"a.sh": f"deepspeed --include a01@a02 tune.py {TRAINER} --deepspeed zero2.json\n"})

    assert "gpus" not in found.workload


@pytest.mark.parametrize("name", ["gradient_checkpointing", "use_gradient_checkpointing"])
def test_both_names_of_checkpointing_recompute(name: str) -> None:
    found = import_texts({"a.sh": f"torchrun --nproc_per_node 8 tune.py {TRAINER} --{name}\n"})

    assert found.strategy.recompute == Recompute.FULL


def test_arguments_of_a_script_overrule_the_file_that_it_names() -> None:
    command = "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file a.toml"
    script = f"{command} --parallelism.tensor_parallel_degree 4 --training.local_batch_size=2\n"

    found = import_texts({"a.toml": TITAN, "run.sh": script})

    assert (found.strategy.tp, found.strategy.dp, found.strategy.mbs) == (4, 2, 2)
    with pytest.raises(RequestError, match=r"import the TOML that --job\.config_file names"):
        import_texts({"run.sh": script})


CHAT = """
OUT=$1
STAGE=$2
if [ "$OUT" == "" ]; then OUT=out; fi
if [ "$STAGE" == "" ]; then STAGE=2; fi
deepspeed --num_gpus 8 main.py --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --bf16 \\
    --zero_stage $STAGE --output_dir $OUT
"""


def test_a_script_with_defaults_of_its_arguments_is_read_as_started_without() -> None:
    found = import_texts({"a.sh": CHAT})
    given = import_texts({"a.sh": CHAT}, given=Given(arguments=("out", "3")))

    assert (found.strategy.zero, given.strategy.zero) == (2, 3)
    assert any("without arguments" in note for note in found.notes)
    assert not any("without arguments" in note for note in given.notes)


def test_a_script_without_such_defaults_asks_for_its_arguments() -> None:
    script = (
        "TP=$1\ntorchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size $TP --micro-batch-size 1\n"
    )

    with pytest.raises(RequestError, match="started with after --"):
        import_texts({"a.sh": script})


SWIFT = "NPROC_PER_NODE=4 swift sft --model m --gradient_accumulation_steps 2 --max_length 2048 --deepspeed zero2"


@pytest.mark.parametrize("name", ["tuner_type", "train_type", "sft_type"])
def test_swift_trains_adapters_unless_it_is_told_to_train_all(name: str) -> None:
    whole = import_texts({"a.sh": f"{SWIFT} --{name} full --batch_size 3\n"})
    adapters = import_texts({"a.sh": f"{SWIFT} --{name} lora --lora_rank 4\n"})

    assert "lora" not in whole.workload and whole.strategy.mbs == 3
    assert adapters.workload["lora"].startswith("4:")
    assert import_texts({"a.sh": SWIFT + "\n"}).workload["lora"].startswith("8:")


@pytest.mark.parametrize("switch", ["", " --disable_gradient_checkpointing true"])
@pytest.mark.parametrize("files", [{}, {"ds.json": '{"zero_optimization": {"stage": 3}, "train_batch_size": "auto"}'}])
def test_llama_factory_recomputes_under_any_launcher(switch: str, files: dict[str, str]) -> None:
    script = (
        f"torchrun --nproc_per_node 8 src/train.py --stage sft --template qwen {TRAINER} --deepspeed ds.json{switch}\n"
    )

    found = import_texts({**files, "a.sh": script})

    assert found.strategy.recompute == (Recompute.NONE if switch else Recompute.FULL)
    assert found.strategy.mbs == 2


def test_arguments_of_a_here_document_are_read() -> None:
    script = (
        "read -r -d '' ARGS <<EOF\n--tensor-model-parallel-size 4 \\\n--num-layers 16\n"
        "--micro-batch-size 2\n--bf16\nEOF\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py $ARGS --global-batch-size 32\n"
    )

    found = import_texts({"a.sh": script})

    assert (found.strategy.tp, found.strategy.dp, found.strategy.mbs, found.workload["precision"]) == (4, 2, 2, "bf16")


def test_a_script_that_leaves_everything_to_its_configuration_names_it() -> None:
    with pytest.raises(RequestError, match=r"leaves its arguments to conf/a\.yaml"):
        import_texts({"a.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --config conf/a.yaml\n"})


@pytest.mark.parametrize("option", ["--config-file", "--cli-arg-yaml-cfgs"])
def test_a_configuration_beside_arguments_is_named(option: str) -> None:
    command = f"torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 {option} a.yaml b.yaml"

    assert any("a.yaml, b.yaml may decide more" in note for note in import_texts({"a.sh": f"{command}\n"}).notes)


def test_a_micro_batch_of_all_devices_is_divided_among_them() -> None:
    words = (
        "data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=512 trainer.n_gpus_per_node=8 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size=16"
    )

    assert import_texts({"a.sh": f"python3 -m verl.trainer.main_ppo {words}\n"}).strategy.mbs == 2


OPENRLHF = """
read -r -d '' words <<EOF
openrlhf.cli.train_sft --max_len 8192 --train_batch_size 256 --micro_train_batch_size 2 --zero_stage 2 --bf16 \\
   --gradient_checkpointing --adam_offload
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --include localhost:0,1,2,3,4,5,6,7 --module $words
fi
"""


def test_arguments_of_openrlhf_are_read() -> None:
    found = import_texts({"a.sh": OPENRLHF})

    assert str(found.strategy) == "tp1 pp1 dp8 mbs2 zero2 recompute=full"
    assert (found.workload["global_batch"], found.workload["seq_len"]) == (256, 8192)
    assert any("optimizer-offload" in note for note in found.notes)


def test_arithmetic_inside_of_arithmetic_is_followed() -> None:
    script = (
        "N=$(nvidia-smi -L | wc -l)\nGB=$(( $(($N * 2)) * $(( 2 + 2 )) ))\n"
        "torchrun --nproc_per_node $N pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 2 "
        "--global-batch-size $GB\n"
    )

    assert import_texts({"a.sh": script}, given=Given(variables={"N": "8"})).workload["global_batch"] == 64
    with pytest.raises(RequestError, match="--set-var N="):
        import_texts({"a.sh": script})


def test_attention_inside_documents_is_named_as_the_file_has_it() -> None:
    text = (
        "from torchtitan.models.llama3 import model_registry\n\n\ndef mine():\n"
        '    spec = model_registry("8B", attn_backend="varlen")\n'
        "    return Trainer.Config(model_spec=spec, training=TrainingConfig(local_batch_size=2, seq_len=8192),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=2))\n"
    )

    notes = import_texts({"a.py": text}, gpus=8).notes

    assert any(note.startswith('attn_backend="varlen" keeps attention inside documents') for note in notes)


@pytest.mark.parametrize("before", ["", "srun ", "srun --nodes 1 "])
def test_options_of_accelerate_count_under_any_launcher(before: str) -> None:
    launcher = f"{before}accelerate launch --num_processes 8 --use_fsdp --parallelism_config_cp_size 2"

    found = import_texts({"a.sh": f"{launcher} tune.py {TRAINER}\n"})

    assert str(found.strategy) == "tp1 pp1 dp4 cp2 mbs2 zero3"


def test_a_configuration_that_a_script_writes_is_read() -> None:
    written = 'cat > ds.json <<EOF\n{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}\nEOF\n'

    found = import_texts({"a.sh": f"{written}deepspeed --num_gpus 8 tune.py {TRAINER} --deepspeed ds.json\n"})

    assert str(found.strategy) == "tp1 pp1 dp8 mbs2 zero2"
    assert not found.defaults


def test_a_configuration_that_a_script_writes_for_a_program_of_its_own_is_read() -> None:
    written = 'cat <<E > ds.json\n{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 32, '
    written += '"zero_optimization": {"stage": 1}}\nE\n'

    found = import_texts({"a.sh": f"{written}deepspeed --num_gpus 8 own.py --deepspeed_config ds.json\n"})

    assert (found.format, str(found.strategy)) == ("deepspeed", "tp1 pp1 dp8 mbs2 zero1")


@pytest.mark.parametrize(("sharding", "zero"), [("FULL_SHARD", 3), ("SHARD_GRAD_OP", 2)])
def test_accelerates_file_that_a_script_writes_decides(sharding: str, zero: int) -> None:
    written = "cat > fsdp.yaml <<E\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
    written += f"fsdp_config:\n  fsdp_sharding_strategy: {sharding}\nE\n"
    trainer = TRAINER.replace(" --bf16 True", "")

    found = import_texts({"a.sh": f"{written}accelerate launch --config_file fsdp.yaml tune.py {trainer}\n"})

    assert (found.strategy.zero, found.strategy.dp, found.workload["precision"]) == (zero, 8, "bf16")


def test_a_program_after_a_launcher_in_python_is_the_program() -> None:
    found = import_texts({"a.sh": f"python ../gaudi_spawn.py --world_size 8 --use_deepspeed tune.py {TRAINER}\n"})

    assert (found.workload["gpus"], found.strategy.mbs) == (8, 2)


def test_a_degree_of_another_tool_stops_the_import_unless_it_is_one() -> None:
    command = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 "
    command += "--global-batch-size 8 --my-sequence-parallel-size"

    assert import_texts({"a.sh": f"{command} 1\n"}).strategy.dp == 4
    with pytest.raises(RequestError, match="its degrees would be lost"):
        import_texts({"a.sh": f"{command} 2\n"})


@pytest.mark.parametrize("name", ["sp_size", "tp_size", "ulysses_parallel_size"])
def test_a_degree_of_another_trainer_stops_the_import(name: str) -> None:
    with pytest.raises(RequestError, match=f"{name}, which hf-trainer does not"):
        import_texts({"a.sh": f"torchrun --nproc_per_node 8 tune.py {TRAINER} --{name} 4\n"})


def test_devices_are_those_of_the_run_that_is_read() -> None:
    first = f"torchrun --nproc_per_node 8 a.py {TRAINER}\n"
    second = f"torchrun --nproc_per_node 4 b.py {TRAINER} --deepspeed zero3.json\n"

    found = import_texts({"a.sh": first + second})

    assert (found.strategy.dp, found.strategy.zero) == (4, 3)
    assert any("starts 2 runs" in note for note in found.notes)
    assert not any("runs" in note for note in import_texts({"a.sh": first + first}).notes)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("if [ -f here ]; then MORE=--gradient_checkpointing; fi", "left out"),
        ("MORE=$(python options.py)", "arguments that it may add are left out"),
        ('MORE="--per_device_train_batch_size 2"', ""),
        ('MORE="--per_device_train_batch_size 4"', "is given twice"),
    ],
)
def test_what_is_left_open_is_noted_whoever_reads_the_script(line: str, note: str) -> None:
    notes = import_texts({"a.sh": f"{line}\ntorchrun --nproc_per_node 8 tune.py {TRAINER} $MORE\n"}).notes

    assert any(note in text for text in notes) if note else not notes


@pytest.mark.parametrize("setting", ["--bits 4", "--load_in_4bit true", "--load_in_8bit", "--quantization_bit 8"])
def test_frozen_matrices_in_few_bits_are_noted(setting: str) -> None:
    command = f"torchrun --nproc_per_node 8 tune.py {TRAINER} --lora_r 8"

    assert any("four or eight bit" in note for note in import_texts({"a.sh": f"{command} {setting}\n"}).notes)
    assert not import_texts({"a.sh": f"{command} --bits 16 --load_in_4bit false\n"}).notes


def test_an_option_of_adapters_without_its_value_names_no_modules() -> None:
    found = import_texts({"a.sh": f"torchrun --nproc_per_node 8 tune.py {TRAINER} --lora_r 8 --lora_target_modules\n"})

    assert found.workload["lora"] == "8:attention+mlp"


def test_older_names_of_megatron_count() -> None:
    command = "torchrun --nproc_per_node 8 pretrain_gpt.py --model-parallel-size 2 --batch-size 4 --num-layers 8"

    found = import_texts({"a.sh": f"{command} --ds-sequence-parallel-size 2\n"})

    assert str(found.strategy) == "tp2 pp1 dp2 cp2 mbs4"
    assert any("Ulysses" in note for note in found.notes)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("accelerate launch -m axolotl.cli.train examples/8b.yaml", "8b.yaml"),
        ("srun python3 -m fairseq.train --batch-size 8", "starts fairseq.train"),
        ("torchrun src/own.py --batch 8", r"starts src/own\.py, .* import it with this script beside it"),
        ("torchrun -m torchtitan.train --module llama3 --config llama3_8b", r"config_registry\.py of its --module"),
    ],
)
def test_a_program_that_is_not_known_is_named(command: str, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        import_texts({"a.sh": f"{command}\n"})


MEGATRON = "pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 8 --micro-batch-size 1 --global-batch-size 32"


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("mpirun -np 16 -H a:8,b:8 python", 16),
        ("mpiexec -n 16 -ppn 8 python3", 16),
        ("srun --ntasks=16 --gpus-per-task=1 python", 16),
        ("srun -u -n16 -c2 --gpus-per-node=8 python", 16),
        ("srun -N 2 --ntasks-per-node=8 --gpus-per-node=8 python", 16),
        ("srun -n 2 torchrun --nnodes 2 --nproc_per_node 8", 16),
        ("srun -N 2 -n 2 torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES", 16),
        ("torchrun --nnodes=1:4 --nproc-per-node=8", None),
        ("torchrun --nnodes=2:2 --nproc-per-node=8", 16),
    ],
)
def test_devices_of_a_launcher_are_its_processes(launcher: str, gpus: int | None) -> None:
    assert import_texts({"a.sh": f"{launcher} {MEGATRON}\n"}).workload.get("gpus") == gpus


MEGATRON = "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --micro-batch-size 1"


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        (f"srun --nodes=8 --ntasks-per-node=8 ./bind.sh python {MEGATRON}", 64),
        (f"srun -N 2 --ntasks-per-node=1 --gpus-per-node=4 python {MEGATRON}", 8),
        (f"#SBATCH -N 4 --gpus=32\ntorchrun --nnodes 4 --nproc_per_node $((SLURM_GPUS / 4)) {MEGATRON}", 32),
        (f"#SBATCH -N 4 -G 16\nsrun python {MEGATRON}", 16),
    ],
)
def test_devices_that_slurm_is_asked_for_are_counted(script: str, gpus: int) -> None:
    imported = import_texts({"a.sh": f"#!/bin/bash\n{script}\n"})

    assert imported.strategy.devices == gpus


def test_elements_of_arrays_are_read_in_arithmetic() -> None:
    script = (
        "#!/bin/bash\ndeclare -A C=([pp]=4)\nP=(1 2)\n(( C[pp] > 2 )) && V='--num-virtual-stages-per-pipeline-rank 2'\n"
        f"torchrun --nproc_per_node 8 {MEGATRON} $V --tensor-model-parallel-size $((P[1] * 1)) "
        "--pipeline-model-parallel-size ${C[pp]} --global-batch-size 8\n"
    )
    imported = import_texts({"a.sh": script})

    assert (imported.strategy.tp, imported.strategy.pp, imported.strategy.vpp) == (2, 4, 2)
    changed = script.replace("torchrun", "(( P[1]++ ))\ntorchrun")
    with pytest.raises(RequestError, match="P"):  # an element that changes is no longer known
        import_texts({"a.sh": changed})
