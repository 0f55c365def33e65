"""Thirty logs in the shape of real output: prefixes, colours, ranks, restarts, wrapped lines, units, NaN, two refused.

Steps take 0.5 s after slow first ones, unless a case says otherwise.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from forerun.search.formats.logs import read_log

GIB = 2.0**30
RANKS = 4
COLOUR = "\x1b[3{}m{}\x1b[39m"


def slow(step: int) -> float:
    return {1: 31.25, 2: 2.0}.get(step, 0.5)


def at(step: int) -> str:
    total = 10.0 + sum(slow(one) for one in range(1, step + 1))
    return f"{int(total) // 60:02}:{int(total) % 60:02},{int(total * 1000) % 1000:03}"


def megatron(step: int, seconds: float | None = None, loss: str = "1.043219E+01", unit: str = "ms") -> str:
    value = (slow(step) if seconds is None else seconds) * (1000 if unit == "ms" else 1)
    return (
        f" [2026-01-02 12:{at(step)[:5]}] iteration {step:8}/      40 | consumed samples: {64 * step:12} | elapsed time per"  # noqa: E501
        f" iteration ({unit}): {value:.4f} | throughput per GPU (TFLOP/s/GPU): 401.2 | learning rate: 1.0E-05 | global batch"  # noqa: E501
        f" size:    64 | lm loss: {loss} | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:"  # noqa: E501
        "   0 |"
    )


MEMORY = "[Rank {}] (after 2 iterations) memory (MB) | allocated: 9034.1 | max allocated: {}.5 | reserved: 9050.0 | max reserved: {}.0"  # noqa: E501


def titan(step: int, loss: str = "12.20138", rank: int = 0) -> str:
    parts = (
        f"step: {step:2}  ",
        f"loss: {loss:>8}  ",
        "grad_norm:  3.5  ",
        "memory: 30.50GiB(38.11%)  ",
        "tps: 5,842  ",
    )
    coloured = "".join(
        COLOUR.format(number, part) for number, part in enumerate((*parts, "tflops: 1,342.11  ", "mfu: 34.6%"))
    )
    return f"[rank{rank}]:[titan] 2026-01-02 12:{at(step)} - root - INFO - {coloured}"


def nanotron(step: int, key: str = "elapsed_time_per_iteration_ms") -> str:
    shown = f"{slow(step):.3g}K" if slow(step) > 1 else "500"
    memory = " | cuda_memory_allocated: 9.1G | cuda_max_memory_reserved: 32.5G" if step == 1 else ""
    return (
        f"01/02/2026 12:{at(step)[:5]} [INFO|DP=0|PP=3|TP=0|ip-26-0-1-2]: iteration: {step} / 40 | consumed_tokens: 1.05M |"  # noqa: E501
        f" {key}: {shown} | tokens_per_sec: 91.2K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 256 | lm_loss: 10.9 |"  # noqa: E501
        f" lr: 0.0003 | model_tflops_per_gpu: 105 | hardware_tflops_per_gpu: 105 | grad_norm: 2.1{memory}"
    )


def deepspeed_timer(step: int) -> str:
    return (
        f"[2026-01-02 12:{at(step)}] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, "
        "RunningAvgSamplesPerSec=15.12, CurrSamplesPerSec=16.02, MemAllocated=4.1GB, MaxMemAllocated=21.5GB"
    )


def breakdown(step: int) -> str:
    return (
        f"[2026-01-02 12:{at(step)}] [INFO] [logging.py:128:log_dist] [Rank 0] time (ms) | fwd_microstep: 101.2 | "
        "bwd_microstep: 210.1 | bwd_allreduce_microstep: 20.2 | step_microstep: 51.9"
    )


def bar(step: int, total: int = 40) -> str:
    rate = f"{slow(step):.2f}s/it" if slow(step) > 1 else f"{1 / slow(step):.2f}it/s"
    return f"\r {100 * step // total:3}%|{'█' * (step // 4)}{' ' * (10 - step // 4)}| {step}/{total} [00:{step:02}<00:50,  {rate}]"  # noqa: E501


def maxtext(step: int) -> str:
    return (
        f"I0102 12:{at(step)[:5]}.123456 139920 metric_logger.py:181] completed step: {step - 1}, seconds: {slow(step):.3f}, "  # noqa: E501
        "TFLOP/s/device: 1,200.105, Tokens/s/device: 16384.001, total_weights: 65536, loss: 10.912"
    )


def olmo(step: int) -> str:
    return (
        f"2026-01-02 12:{at(step)[:5]}.101\tnode01:0\tolmo_core.train.callbacks.console_logger:93\tINFO\t[step={step}/40,epoch=1]\n"  # noqa: E501
        f"    optim/total grad norm=0.9011\n    system/GPU active mem (%)=30.11\n    system/GPU active mem (GiB)=21.50\n"  # noqa: E501
        f"    system/GPU reserved mem (GiB)=24.25\n    throughput/device/BPS (actual avg)=1.9\n    throughput/device/BPS={1 / slow(step):.4f}"  # noqa: E501
    )


def bridge(step: int) -> str:
    return (
        f"Step Time : {slow(step):.2f}s GPU utilization: 401.2MODEL_TFLOP/s/GPU\n [2026-01-02 12:{at(step)[:5]}.102231] iteration"  # noqa: E501
        f" {step:8}/      40 | consumed samples: {64 * step:12} | elapsed time per iteration (ms): {1000 * slow(step):.1f} |"  # noqa: E501
        " learning rate: 3.0E-06 | global batch size:    64 | lm loss: 1.2E+01 |"
    )


def nemo(step: int) -> str:
    return (
        f"[NeMo I 2026-01-02 12:{at(step)[:5]} nemo_logger:145] Training epoch 0, iteration {step - 1}/39 | lr: 1.5e-07 | global_batch_size:"  # noqa: E501
        f" 64 | global_step: {step - 1} | peak_memory_usage: {30 * 2**30} | memory_allocated: {20 * 2**30} | reduced_train_loss: 11.03 |"  # noqa: E501
        f" train_step_timing in s: {slow(step):.4g}"
    )


def lines(one: Callable[[int], str], steps: int = 20, every: int = 1) -> str:
    return "\n".join(one(step) for step in range(1, steps + 1) if step % every == 0)


def wrapped(text: str, width: int) -> str:
    """Break lines as a terminal of some columns does that is captured."""
    return "\n".join(line[at : at + width] for line in text.splitlines() for at in range(0, max(len(line), 1), width))


def tagged(text: str, tag: str) -> str:
    return "\n".join(tag + line for line in text.splitlines())


def interleaved(one: Callable[[int, int], str], steps: int = 20) -> Iterator[str]:
    """Every rank prints every step, each a little later than the last."""
    order = sorted((step + 0.4 * rank, step, rank) for step in range(1, steps + 1) for rank in range(RANKS))
    return (one(step, rank) for _, step, rank in order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    text: str
    framework: str = ""
    step_s: float | None = 0.5
    peak: float | None = None
    outcome: str = "ok"


NOISE = (
    "W0102 11:59:58.101 1234 torch/distributed/run.py:793] *****************************************\n"
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
    "/usr/lib/python3.12/site-packages/torch/utils/checkpoint.py:31: FutureWarning: use_reentrant will be required in 2.9\n"  # noqa: E501
    "  warnings.warn(\n"
)
MEMORIES = "\n".join(MEMORY.format(rank, 30000 + rank, 32768 + rank) for rank in range(RANKS))
HF_SUMMARY = "{'train_runtime': 43.1, 'train_samples_per_second': 37.0, 'train_steps_per_second': 2.0, 'train_loss': 2.1, 'epoch': 1.0}"  # noqa: E501
LOSSES = "\n".join(
    f"{{'loss': 2.{step}, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.{step}}}" for step in range(1, 9)
)
LOGS: dict[str, Log] = {
    "megatron under srun -l": Log(
        text=NOISE + tagged(lines(megatron) + "\n" + MEMORIES, "12: "), framework="megatron-lm", peak=32771 * 2.0**20
    ),
    "megatron with nan": Log(text=lines(lambda step: megatron(step, loss="NAN")), framework="megatron-lm"),
    "megatron restarted from a checkpoint": Log(
        text=lines(megatron, 12)
        + "\nwandb: lost connection\n"
        + "\n".join(megatron(step, 40.0 if step == 11 else 0.5) for step in range(11, 31)),
        framework="megatron-lm",
    ),
    "megatron, a slower run first": Log(
        text=lines(lambda step: megatron(step, 0.9)) + "\n" + NOISE + lines(megatron), framework="megatron-lm"
    ),
    "megatron, a crashed run first": Log(
        text=lines(lambda step: megatron(step, 0.9), 6) + "\nRuntimeError: NCCL error\n" + lines(megatron),
        framework="megatron-lm",
    ),
    "megatron-deepspeed in seconds": Log(text=lines(lambda step: megatron(step, unit="s")), framework="megatron-lm"),
    "megatron in a terminal of 100 columns": Log(text=wrapped(lines(megatron), 100), framework="megatron-lm"),
    "megatron, long steps with separators": Log(
        text=lines(lambda step: megatron(step).replace("500.0000", "12,345.6")), framework="megatron-lm", step_s=12.3456
    ),
    "torchtitan in colours": Log(text=NOISE + lines(titan), framework="torchtitan", peak=30.5 * GIB),
    "torchtitan every tenth step": Log(
        text=lines(titan, 1) + "\n" + lines(titan, 40, 10), framework="torchtitan", peak=30.5 * GIB
    ),
    "torchtitan, all ranks": Log(
        text="\n".join(interleaved(lambda step, rank: titan(step, rank=rank))), framework="torchtitan", peak=30.5 * GIB
    ),
    "torchtitan with nan": Log(text=lines(lambda step: titan(step, "nan")), framework="torchtitan", peak=30.5 * GIB),
    "deepspeed's timer": Log(text=lines(deepspeed_timer), framework="deepspeed", peak=21.5 * GIB),
    "deepspeed's breakdown": Log(
        text=lines(lambda step: breakdown(step) + "\n" + deepspeed_timer(step)), framework="deepspeed", peak=21.5 * GIB
    ),
    "deepspeed's pipeline": Log(
        text=tagged(
            lines(lambda step: f"steps: {step} loss: 9.6150 iter time (s): {slow(step):.3f} samples/sec: 128.0"),
            "node1: ",
        ),
        framework="deepspeed",
    ),
    "transformers' bar": Log(text=NOISE + lines(bar, 40).replace("\n", ""), framework="transformers"),
    "transformers without a bar": Log(text=LOSSES + "\n" + HF_SUMMARY, framework="transformers"),
    "transformers with an evaluation": Log(
        text=lines(bar, 40)
        + "\n"
        + "".join(f"\r{step * 10}%|█| {step}/10 [00:00<00:01, 9.1it/s]" for step in range(1, 11)),
        framework="transformers",
    ),
    "nanotron": Log(text=tagged(lines(nanotron), "3: "), framework="nanotron", peak=32.5e9),
    "nanotron, newer": Log(
        text=lines(lambda step: nanotron(step, "time_per_iteration_ms")), framework="nanotron", peak=32.5e9
    ),
    "maxtext": Log(
        text="Total memory size: 40.2 GB, Temp size: 20.1 GB\n" + lines(maxtext), framework="maxtext", peak=40.2 * GIB
    ),
    "maxtext, all hosts": Log(
        text="\n".join(interleaved(lambda step, rank: f"[{rank}] " + maxtext(step))), framework="maxtext"
    ),
    "olmo-core": Log(text=lines(olmo), framework="olmo-core", peak=24.25 * GIB),
    "bridge": Log(text=lines(bridge), framework="megatron-lm"),
    "nemo": Log(text=tagged(lines(nemo), "0: "), framework="megatron-bridge", peak=30 * GIB),
    "json lines": Log(
        text="\n".join(
            json.dumps({"step": step, "step_time": slow(step), "loss": float("nan")}) for step in range(1, 20)
        )
    ),
    "milliseconds in brackets": Log(
        text=lines(
            lambda step: f"Epoch 1 [{step}/40] loss=3.1 step_time(ms)={1000 * slow(step):,.1f} peak memory: 17.25 GiB"
        ),
        peak=17.25 * GIB,
    ),
    "out of memory after a few steps": Log(
        text=tagged(
            lines(titan, 4)
            + "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.1 GiB",  # noqa: E501
            "[rank1]:",
        ),
        framework="torchtitan",
        peak=30.5 * GIB,
        outcome="oom",
    ),
    "refused: losses without times": Log(text=LOSSES, step_s=None, outcome="no progress"),
    "refused: an installation": Log(
        text=NOISE
        + "Collecting torch==2.9.1\n  Downloading torch-2.9.1.whl (1.2 MB)\nInstalling collected packages: torch",
        step_s=None,
        outcome="no progress",
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_step_time_peak_and_outcome(name: str) -> None:
    expected = LOGS[name]
    report = read_log(expected.text)
    assert report.outcome == expected.outcome
    assert report.framework == expected.framework
    assert (report.step_s or 0.0) == pytest.approx(expected.step_s or 0.0, rel=0.01)
    assert (report.peak_bytes or 0.0) == pytest.approx(expected.peak or 0.0, rel=1e-3)
    assert bool(report.evidence) == (expected.outcome != "ok")


def test_there_are_thirty() -> None:
    assert len(LOGS) == 30
