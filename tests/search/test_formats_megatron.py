"""Megatron-LM as users have it: spellings, layouts, worlds, logs."""

import pytest

from forerun.search.formats import Imported, import_texts
from forerun.search.formats.layout import layout_text, parse_layout
from forerun.search.formats.megatron_log import measured_steps
from forerun.spaces.errors import RequestError


def read(text: str, name: str = "run.sh", **options: int) -> Imported:
    """Import one text."""
    return import_texts({name: text}, **options)  # type: ignore[arg-type]  # gpus


BASE = "--num-layers 32 --micro-batch-size 2 --global-batch-size 64 --seq-length 4096 --bf16 "


@pytest.mark.parametrize(
    ("arguments", "strategy"),
    [
        ("--tensor-model-parallel-size 4", "tp4 pp1 dp16 mbs2"),
        ("--tensor_model_parallel_size=4 --sequence_parallel", "tp4 pp1 dp16 mbs2 sp"),
        ("--tensor-model-parallel-size \\\n  4 --use-distributed-optimizer", "tp4 pp1 dp16 mbs2 zero1"),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2", "pp4 vpp2 dp16 mbs2 interleaved"),
        (
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
            "pp4 vpp4 dp16 mbs2 interleaved",
        ),
        ("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 5", "pp4 dp16 mbs2 layers=5,9,9,9"),
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7 "
            "--decoder-last-pipeline-num-layers 7",
            "pp4 dp16 mbs2 layers=7,9,9,7",
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*15|t*17,L'",
            "pp2 dp32 mbs2 layers=15,17",
        ),
        ("--context-parallel-size 2 --recompute-activations", "cp2 dp32 mbs2 recompute=selective"),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "dp64 mbs2 recompute=full",
        ),
        ("--num-experts 8 --tensor-model-parallel-size 2", "tp2 dp32 etp2 mbs2"),
        (
            "--num-experts 8 --tensor-model-parallel-size 2 --expert-model-parallel-size 8 "
            "--expert-tensor-parallel-size 1",
            "tp2 dp32 ep8 mbs2",
        ),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "dp64 mbs2 zero3"),
        ("--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping", "pp2 dp32 mbs2 placement=tp-cp-ep-pp-dp"),
    ],
)
def test_arguments(arguments: str, strategy: str) -> None:
    from forerun.spaces.strategies import parse_strategy

    expected = parse_strategy(strategy.replace("interleaved", "schedule=interleaved"))

    assert read(BASE + arguments, gpus=64).strategy == expected
    assert read(f"torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py {BASE} {arguments}").strategy == expected


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("torchrun --nproc-per-node=8 --nnodes=4 pretrain_gpt.py {}", 32),
        ("N=4\ntorchrun --nproc_per_node 8 --nnodes ${{N}} pretrain_gpt.py {}", 32),
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun python pretrain_gpt.py {}", 32),
        ("#SBATCH -N 4\n#SBATCH --gres=gpu:8\nsrun python -u pretrain_gpt.py {}", 32),
        ("NNODES=4\nGPUS_PER_NODE=8\npython pretrain_gpt.py {}", 32),
        (
            'OPTIONS=" \\\n {} "\nsrun --nodes=4 --gpus-per-node=8 sh -c "cd /x; python pretrain_gpt.py ${{OPTIONS}}"',
            32,
        ),
        ("python pretrain_gpt.py {}", None),
    ],
)
def test_the_number_of_gpus(script: str, gpus: int | None) -> None:
    found = read(script.format(BASE.strip()))

    assert found.workload.get("gpus") == gpus
    assert found.strategy.dp == (gpus or 1)
    assert bool(found.defaults) == (gpus is None)


def test_gpus_that_do_not_fit() -> None:
    with pytest.raises(RequestError, match="multiple of 8"):
        read(BASE + "--tensor-model-parallel-size 8", gpus=12)

    found = read(f"torchrun --nproc_per_node 2 pretrain_gpt.py {BASE} --tensor-model-parallel-size 8")

    assert found.strategy.dp == 1
    assert "placeholder" in found.notes[0]


def test_the_last_of_two_values_counts() -> None:
    found = read(BASE + "--tensor-model-parallel-size 2 --tensor-model-parallel-size 4", gpus=8)

    assert found.strategy.tp == 4
    assert "given twice" in found.notes[0]


def test_branches_are_decided_by_their_texts_only() -> None:
    script = """
KIND=big
if [[ $KIND == small ]]; then
    TP=1
elif [ "$KIND" = "big" ] && [[ 3 -gt 2 ]]; then
    TP=8
else
    TP=2
fi
if [ -f /etc/passwd ]; then TP=4; fi
python pretrain_gpt.py --num-layers 8 --tensor-model-parallel-size $TP
"""
    found = read(script, gpus=8)

    assert found.strategy.tp == 8
    assert any("cannot be decided" in note for note in found.notes)


def test_layouts_of_the_published_grammar() -> None:
    # The example of Megatron-LM's own help text: PP16 x VPP2, prediction block and loss on stages of their own.
    assert parse_layout("Et*3|(tt|)*29,m|L", "here") == (3, *[2] * 29, 0, 0)
    assert parse_layout("Ettt|(tt|)*29,m|L", "here") == parse_layout("Et*3|(tt|)*29,m|L", "here")


@pytest.mark.parametrize("counts", [(4, 4), (3, 5, 5, 3), (1, 2, 2, 2, 2, 0, 7), (0, 1)])
@pytest.mark.parametrize("mtp", [0, 1])
def test_layouts_round_trip(counts: tuple[int, ...], mtp: int) -> None:
    text = layout_text(counts, mtp)

    assert parse_layout(text, "here") == counts
    assert text.startswith("E") and text.endswith("m" * mtp + "L")


LOG = """using world size: 16, data-parallel size: 2
------------------------ arguments ------------------------
  global_batch_size ............................... 64
  micro_batch_size ................................ 1
  num_layers ...................................... 32
  pipeline_model_parallel_size .................... 2
  recompute_granularity ........................... None
  recompute_modules ............................... ['core_attn']
  sequence_parallel ............................... True
  seq_length ...................................... 4096
  tensor_model_parallel_size ...................... 4
  use_distributed_optimizer ....................... True
  bf16 ............................................ True
  world_size ...................................... 16
"""
LINE = (
    " [2026-01-01 00:00:00] iteration {n:8d}/ 100 | consumed samples: 64 | elapsed time per iteration (ms): {ms:.1f} | "
    "throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | learning rate: 1.0E-04 | global batch size: 64 | lm loss: 1.0 |\n"
)


def test_a_log_gives_strategy_and_step_time() -> None:
    times_ms = [60000.0, 9000.0, 5200.0, 5000.0, 5100.0, 4900.0, 5000.0, 5300.0, 5000.0]
    lines = "".join(LINE.format(n=n, ms=ms, tflops=2e6 / ms) for n, ms in enumerate(times_ms, start=1))

    found = read(LOG + lines, name="train.log")

    assert str(found.strategy) == "tp4 pp2 dp2 mbs1 zero1 sp"
    assert found.measured is not None
    # Three steps of warm-up; of the others 4.9, 5.0, 5.0, 5.0, 5.1, 5.3 the middle.
    assert found.measured.step_time_s == pytest.approx(5.0)
    assert (found.measured.counted, found.measured.skipped) == (6, 3)
    assert found.measured.low_s == pytest.approx(4.9)
    assert found.measured.high_s == pytest.approx(5.3)
    assert found.measured.tflops_per_gpu == pytest.approx(400.0)
    assert found.workload == {"global_batch": 64, "seq_len": 4096, "precision": "bf16", "gpus": 16}


def test_short_logs_and_running_means() -> None:
    one = measured_steps("elapsed time per iteration (ms): 1000.0/999.0 |", "log")
    two = measured_steps("elapsed time per iteration (ms): 9000.0\nelapsed time per iteration (ms): 1000.0", "log")

    assert (one.step_time_s, one.counted, one.skipped) == (1.0, 1, 0)
    assert (two.step_time_s, two.counted, two.skipped) == (1.0, 1, 1)
    with pytest.raises(RequestError, match="no line has a step time"):
        measured_steps("Epoch 1: loss 2.0", "log")
