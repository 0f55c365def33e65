"""Training logs as frameworks, launchers and terminals write them: step time, peak memory, outcome."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.search.formats.logs import read_log
from forerun.search.formats.logs.lines import clean_lines
from forerun.spaces.errors import RequestError

GIB = 2.0**30
SLOW = 9.0
"""Seconds of the first step of every log here: 0.5 is right after the warm-up."""


def seconds(step: int) -> float:
    return SLOW if step == 1 else 0.5


def clock(step: int) -> str:
    """The time at which a step ends, from midnight on."""
    at = sum(seconds(one) for one in range(1, step + 1))
    return f"00:00:{int(at):02d},{int(at * 1000) % 1000:03d}"


def iteration(step: int, took_s: float, loss: str = "1.043219E+01", unit: str = "ms") -> str:
    shown = f"{took_s * (1000 if unit == 'ms' else 1):.4f}"
    return (
        f" [2026-01-02 {clock(step)[:8]}] iteration {step:8}/     100 | consumed samples: {step * 64:12} | elapsed time"
        f" per iteration ({unit}): {shown} | throughput per GPU (TFLOP/s/GPU): 401.2 | learning rate: 1.0E-05 | "
        f"lm loss: {loss} | loss scale: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def megatron(step: int) -> str:
    memory = f"[Rank {step % 2}] (after {step} iterations) memory (MB) | allocated: 9.5 | max allocated: {2048 + step} | max reserved: 3072.0"  # noqa: E501
    return iteration(step, seconds(step)) + (f"\n{memory}" if step == 2 else "")


def megatron_steps(step: int) -> str:
    return f"Step Time : {seconds(step):.2f}s GPU utilization: 401.2MODEL_TFLOP/s/GPU\n{iteration(step, seconds(step))}"


def bridge(step: int) -> str:
    return f"Training epoch 0, iteration {step}/99 | lr: 1e-05 | global_step: {step} | reduced_train_loss: 10.9 | train_step_timing in s: {seconds(step)}"  # noqa: E501


def nemo_bar(step: int) -> str:
    return f"Epoch 0: : {step}%|#   | {step}/100 [00:{step:02d}<01:31, reduced_train_loss=6.1, global_step={step}.0, train_step_timing in s={seconds(step)}]"  # noqa: E501


def nemo_log(step: int) -> str:
    memory = f"peak_memory_usage: {30 * 2**30} | memory_allocated: {20 * 2**30}"
    return f"[NeMo I 2026-01-02 {clock(step)[:8]} nemo_logger:145] Training epoch 0, iteration {step - 1}/39 | lr: 1e-07 | global_step: {step - 1} | {memory} | train_step_timing in s: {seconds(step):.4g}"  # noqa: E501


def titan(step: int, loss: str = "12.20138") -> str:
    return (
        f"[titan] 2026-01-02 {clock(step)} - root - INFO - step: {step:2}  loss: {loss}  grad_norm:  3.5  "
        f"memory: 30.50GiB(38.11%)  tps: 5,842  tflops: 1,342.11  mfu: 34.6%"
    )


def deepspeed_timer(step: int) -> str:
    return (
        f"[2026-01-02 {clock(step)}] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * step}/global_step={step}, "
        "RunningAvgSamplesPerSec=15.1, CurrSamplesPerSec=16.0, MemAllocated=4.1GB, MaxMemAllocated=21.5GB"
    )


def deepspeed_parts(step: int) -> str:
    parts = "fwd_microstep: 101.2 | bwd_microstep: 210.1 | bwd_allreduce_microstep: 20.2 | step_microstep: 51.9"
    head = f"[2026-01-02 {clock(step)}] [INFO] [logging.py:128:log_dist] [Rank 0] time (ms) | "
    return f"{head}{parts}\n{deepspeed_timer(step)}"


def deepspeed_pipeline(step: int) -> str:
    return f"steps: {step} loss: 10.1312 iter time (s): {seconds(step):.3f} samples/sec: 128.0"


def deepspeed_rates(step: int) -> str:
    return f"[2026-01-02 {clock(step)}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]"  # noqa: E501


def nanotron(step: int, key: str = "elapsed_time_per_iteration_ms") -> str:
    time = "9K" if step == 1 else "500"
    memory = " | cuda_memory_allocated: 9.1G | cuda_max_memory_reserved: 32.5G" if step == 4 else ""
    return (
        f"01/02/2026 00:00:01 [INFO|DP=0|PP=0|TP=0|n1]: iteration: {step} / 100 | consumed_tokens: 1.05M | "
        f"{key}: {time} | tokens_per_sec: 91.2K | lm_loss: 10.9{memory}"
    )


def maxtext(step: int) -> str:
    head = "Total memory size: 40.2 GB, Temp size: 20.1 GB\n" if step == 1 else ""
    return f"{head}completed step: {step - 1}, seconds: {seconds(step):.3f}, TFLOP/s/device: 200.1, loss: 10.9"


def olmo(step: int) -> str:
    return (
        f"[2026-01-02 {clock(step)[:8]}] CRITICAL [olmo_core:121, rank=0] [step={step}/100,epoch=1]\n"
        f"    train/CE loss=9\n    throughput/device/BPS={1 / seconds(step):.4f}\n    system/GPU active mem (GiB)=21.5"
    )


def olmo_console(step: int) -> str:
    return (
        f"2026-01-02 {clock(step)[:8]}.101\tnode01:0\tolmo_core.train.callbacks.console_logger:93\tINFO\t"
        f"[step={step}/40,epoch=1]\n    system/GPU active mem (%)=30.11\n    system/GPU active mem (GiB)=21.50\n"
        f"    system/GPU reserved mem (GiB)=24.25\n    throughput/device/BPS (actual avg)=1.9\n"
        f"    throughput/device/BPS={1 / seconds(step):.4f}"
    )


def trainer(step: int) -> str:
    bar = f"{step}%|{'█' * step:10}| {step}/100 [00:{step:02d}<00:50, {'9.00s/it' if step == 1 else '2.00it/s'}]"
    loss = f"\n{{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.0{step}}}" if step % 4 == 0 else ""
    return f"{bar}{loss}"


def script(step: int) -> str:
    return f"iter {step}: loss 4.0863, time {1000 * seconds(step):.2f}ms"


def slim(step: int) -> str:
    return f"INFO:tensorflow:global step {step}: loss = 72.8 ({seconds(step):.3f} sec/step)"


def deepspeed_early(step: int) -> str:
    return f"[INFO 2026-01-02 {clock(step)}] 0/{step}, SamplesPerSec=13.19749106827976"


def own_words(step: int) -> str:
    return f"step {step:4} | loss 9.11 | step_time: {seconds(step):.3f} s | peak memory: 17.25 GiB"


FRAMEWORKS: dict[Callable[[int], str], tuple[str, float | None]] = {
    megatron: ("megatron-lm", 3.0 * GIB),
    megatron_steps: ("megatron-lm", None),
    bridge: ("megatron-bridge", None),
    nemo_log: ("megatron-bridge", 30.0 * GIB),
    nemo_bar: ("megatron-bridge", None),
    titan: ("torchtitan", 30.5 * GIB),
    deepspeed_timer: ("deepspeed", 21.5 * GIB),
    deepspeed_parts: ("deepspeed", 21.5 * GIB),
    deepspeed_pipeline: ("deepspeed", None),
    deepspeed_rates: ("deepspeed", None),
    nanotron: ("nanotron", 32.5e9),
    maxtext: ("maxtext", 40.2 * GIB),
    olmo: ("olmo-core", 21.5 * GIB),
    olmo_console: ("olmo-core", 24.25 * GIB),
    trainer: ("transformers", None),
    script: ("", None),
    slim: ("", None),
    deepspeed_early: ("deepspeed", None),
    own_words: ("", 17.25 * GIB),
}


def log_of(line: Callable[[int], str], steps: int = 9) -> str:
    head = "Loading checkpoint shards: 100%|####| 4/4 [00:03<00:00,  1.20it/s]\nnumber of parameters: 8030261248\n"
    return head + "\n".join(line(step) for step in range(1, steps + 1)) + "\n"


def coloured(text: str) -> str:
    return "".join(f"\x1b[32m{line}\x1b[39;0m\n" for line in text.splitlines())


def srun(text: str) -> str:
    return "".join(f"{rank:2}: {line}\n" for line in text.splitlines() for rank in (0, 1, 10))


def torchrun(text: str) -> str:
    return "".join(f"[rank{rank}]:{line}\n" for line in text.splitlines() for rank in range(2))


def ray(text: str) -> str:
    return "".join(f"\x1b[36m(Worker pid=41, ip=10.0.0.1)\x1b[0m {line}\n" for line in text.splitlines())


def returns(text: str) -> str:
    return text.replace("\n", "\r")


@pytest.mark.parametrize("line", FRAMEWORKS, ids=lambda line: line.__name__)
@pytest.mark.parametrize("written", [str, coloured, srun, torchrun, ray, returns], ids=lambda way: way.__name__)
def test_steps_and_peak_of_every_framework(line: Callable[[int], str], written: Callable[[str], str]) -> None:
    framework, peak = FRAMEWORKS[line]
    report = read_log(written(log_of(line)))
    assert report.framework == framework
    assert report.step_s == pytest.approx(0.5, rel=0.01)
    assert report.peak_bytes == (None if peak is None else pytest.approx(peak))
    assert report.outcome == "ok"
    assert not report.evidence


def lines(line: Callable[[int], str], steps: range = range(1, 21)) -> str:
    return "\n".join(map(line, steps))


def all_ranks(line: Callable[[int], str]) -> str:
    """Write every step once per rank, each rank a little later than the last."""
    order = sorted((step + 0.4 * rank, step, rank) for step in range(1, 21) for rank in range(4))
    return "\n".join(f"[rank{rank}]:{line(step)}" for _, step, rank in order)


def slower(step: int) -> str:
    return iteration(step, 0.9)


LOSSES = "\n".join(f"{{'loss': 2.{n}, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.{n}}}" for n in range(1, 9))
SUMMARY = "{'train_runtime': 43.1, 'train_samples_per_second': 37.0, 'train_steps_per_second': 2.0, 'epoch': 1.0}"
TEN_BARS = "".join(f"\r{n * 10}%|█| {n}/10 [00:00<00:01, 9.1it/s]" for n in range(1, 11))
NOISE = "W0102 torch/distributed/run.py:793] ***\nFutureWarning: use_reentrant will be required\n  warnings.warn(\n"
WHOLE = {
    "nan": lines(lambda step: iteration(step, seconds(step), "NAN")),
    "nan of torchtitan": lines(lambda step: titan(step, "nan")),
    "restarted from a checkpoint": lines(megatron, range(1, 13)) + "\nwandb: lost connection\n"
    + lines(lambda step: iteration(step, 40.0 if step == 11 else 0.5), range(11, 31)),
    "a slower run first": f"{lines(slower)}\n{NOISE}{lines(megatron)}",
    "a crashed run first": lines(slower, range(1, 7)) + f"\nRuntimeError: NCCL error\n{lines(megatron)}",
    "seconds": lines(lambda step: iteration(step, seconds(step), unit="s")),
    "a terminal of 100 columns": "\n".join(
        line[at : at + 100] for line in lines(megatron).splitlines() for at in range(0, max(len(line), 1), 100)
    ),
    "all ranks": all_ranks(titan),
    "all hosts": all_ranks(maxtext),
    "newer names of nanotron": lines(lambda step: nanotron(step, "time_per_iteration_ms")),
    "a trainer without a bar": f"{LOSSES}\n{SUMMARY}",
    "an evaluation": f"{lines(trainer, range(1, 41))}\n{TEN_BARS}",
    "lines of JSON": lines(lambda step: json.dumps({"step": step, "step_time": seconds(step), "loss": float("nan")})),
    "milliseconds in brackets": lines(lambda step: f"Epoch [{step}/40] step_time(ms)={1e3 * seconds(step):,.1f}"),
}  # fmt: skip
"""Logs of runs with steps of 0.5 s."""


@pytest.mark.parametrize("name", WHOLE)
def test_the_run_that_counts_is_found_in_its_log(name: str) -> None:
    report = read_log(WHOLE[name])
    assert (report.outcome, report.step_s) == ("ok", pytest.approx(0.5, rel=0.01))


def test_separators_of_thousands_are_no_decimals() -> None:
    long = lines(lambda step: iteration(step, seconds(step)).replace("500.0000", "12,345.6"))
    assert read_log(long).step_s == pytest.approx(12.3456)


@pytest.mark.parametrize("line", FRAMEWORKS, ids=lambda line: line.__name__)
def test_a_log_that_grows_is_read_at_every_length(line: Callable[[int], str]) -> None:
    text = log_of(line)
    counts = [len(read_log(text[:end]).step_times_s) for end in range(0, len(text), 40)]
    assert counts == sorted(counts)
    assert read_log("").outcome == "no progress"


def test_the_first_steps_do_not_count() -> None:
    assert read_log(log_of(megatron, steps=1)).step_s == SLOW
    assert read_log(log_of(megatron, steps=3)).skipped == 1
    assert read_log(log_of(megatron, steps=9)).skipped == 3
    assert read_log(log_of(megatron, steps=9)).last_step == 9


def test_lines_of_every_tenth_step_are_divided_by_ten() -> None:
    lines = [f"[titan] 2026-01-02 00:{at:02d}:00,000 - root - INFO - step: {step}  loss: 9.1  tps: 1"
             for at, step in enumerate((1, 10, 20, 30, 40, 50, 60, 70, 80))]  # fmt: skip
    report = read_log("\n".join(lines))
    assert report.step_s == pytest.approx(6.0)
    assert report.last_step == 80
    assert report.skipped == 1


TRACEBACK = """Traceback (most recent call last):
  File "/opt/train.py", line 310, in <module>
    main()
  File "/opt/train.py", line 20, in step
    loss.backward()
"""
MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB"
)
ENDS = {
    "cuda": (TRACEBACK + MEMORY, "oom", "CUDA out of memory"),
    "older torch": (
        TRACEBACK + "RuntimeError: CUDA out of memory. Tried to allocate 1 GiB",
        "oom",
        "Tried to allocate",
    ),
    "hip": (TRACEBACK + "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20 MiB", "oom", "HIP"),
    "npu": (TRACEBACK + "RuntimeError: NPU out of memory. Tried to allocate 1 GiB", "oom", "NPU"),
    "driver": ("RuntimeError: CUDA error: out of memory", "oom", "CUDA error"),
    "xla": (
        TRACEBACK + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 7406166528 bytes.",
        "oom",
        "RESOURCE_EXHAUSTED",
    ),
    "tpu": (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
        "memory space hbm. Used 18.2G of 15.8G hbm.",
        "oom",
        "hbm",
    ),
    "code": (TRACEBACK + "ValueError: hidden size must be divisible by heads\n", "failed", "ValueError: hidden size"),
    "bare": (TRACEBACK + "AssertionError\n", "failed", "AssertionError"),
    "others follow": (
        TRACEBACK
        + "KeyError: 'wte'\n"
        + TRACEBACK
        + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
        "failed",
        "KeyError",
    ),
    "chained": (
        TRACEBACK
        + "KeyError: 'rope'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + TRACEBACK
        + "ValueError: unknown rope type\n",
        "failed",
        "ValueError: unknown rope",
    ),
    "signal": ("srun: error: node-2: task 9: Segmentation fault (core dumped)", "failed", "Segmentation fault"),
    "time limit": (
        "slurmstepd: error: *** JOB 81 ON n1 CANCELLED AT 2026-01-02T00:00 DUE TO TIME LIMIT ***",
        "failed",
        "TIME LIMIT",
    ),
    "host memory": ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=81.0.", "failed", "oom-kill"),
    "exit code": (
        "E0526 16:36:24 140 api.py:826] failed (exitcode: -11) local_rank: 0 (pid: 1) of binary: python",
        "failed",
        "-11",
    ),
    "watchdog": (
        "[rank3]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)",
        "failed",
        "Watchdog",
    ),
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("written", [str, srun, torchrun], ids=lambda way: way.__name__)
def test_the_cause_of_an_end_is_named(name: str, steps: int, written: Callable[[str], str]) -> None:
    text, outcome, words = ENDS[name]
    report = read_log(written(log_of(titan, steps=steps) + text))
    assert report.outcome == outcome
    assert words in report.evidence[0]


@pytest.mark.parametrize(
    "line",
    [
        "  exit_on_out_of_memory ........................... False",
        "set PYTORCH_ALLOC_CONF=expandable_segments:True to avoid running out of memory",
        "W external/xla/bfc_allocator.cc] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.1GiB. The "
        "caller indicates that this is not a failure, but this may mean that there could be performance gains",
        "WARNING - 3 CUDA memory allocation retries.",
        "UserWarning: None of the inputs have requires_grad=True",
        "class TimeoutError is registered",
    ],
)
def test_words_about_errors_are_no_errors(line: str) -> None:
    report = read_log(f"{line}\n{log_of(nanotron)}{line}\n")
    assert report.outcome == "ok"
    assert report.step_s == pytest.approx(0.5)


def test_an_error_that_the_run_outlived_is_none() -> None:
    """A batch size that is halved until it fits prints the error and goes on."""
    assert read_log(f"{TRACEBACK}{MEMORY}\n{log_of(megatron)}").outcome == "ok"


def test_a_pattern_of_the_user_replaces_the_readers() -> None:
    lines = [f"{titan(step)}\nmine {step} took {seconds(step) * 2e3:.0f} of {10 + step} gib" for step in range(1, 10)]
    report = read_log("\n".join(lines), pattern=r"mine (?P<step>\d+) took (?P<step_ms>\d+) of (?P<peak_gib>\d+)")
    assert report.step_s == pytest.approx(1.0)
    assert report.peak_bytes == 19 * GIB
    assert read_log("5 steps per s", pattern=r"(?P<steps_per_s>\d+) steps").step_s == pytest.approx(0.2)
    with pytest.raises(RequestError, match="not a regular expression"):
        read_log("", pattern="(")
    with pytest.raises(RequestError, match="step_s"):
        read_log("", pattern=r"time (\d+)")


HEAD = "_step,_runtime,perf/step_time,memory/max_reserved(GiB)"


def table(name: str) -> tuple[str, str]:
    steps = range(1, 10)
    at = [sum(seconds(one) for one in range(1, step + 1)) for step in steps]
    if name == "wandb export":
        head = '"Step","run-3 - perf/step_time_ms","run-3 - perf/step_time_ms__MIN","run-3 - perf/step_time_ms__MAX"'
        return "export.csv", "\n".join([head, *(f"{n},{1e3 * seconds(n)},1,1" for n in steps)])
    if name == "wandb history":
        entries = [{"_step": n, "_runtime": t, "train/loss": 9.0} for n, t in zip(steps, at, strict=True)]
        return "history.jsonl", "\n".join(json.dumps(entry) for entry in entries)
    if name == "mlflow metric":
        return "step_time", "\n".join(f"17675304{n:05d} {seconds(n)} {n}" for n in steps)
    if name == "mlflow export":
        rows = [f"a,train/step_time,{seconds(n)},{n},{int(1e3 * n)}" for n in steps]
        return "metrics.csv", "\n".join(["run_id,key,value,step,timestamp", *rows])
    if name == "mlflow times":
        return "loss", "\n".join(f"{1767530400000 + int(1e3 * t)} 9.1 {n}" for n, t in zip(steps, at, strict=True))
    if name == "rates":
        return "log.jsonl", "\n".join(json.dumps({"step": n, "steps_per_second": 1 / seconds(n)}) for n in steps)
    return "log.csv", "\n".join([HEAD, *(f"{n},{t},{seconds(n)},30.5" for n, t in zip(steps, at, strict=True))])


@pytest.mark.parametrize(
    ("entry", "step_s"),
    [
        ('{{"current_steps": {n}0, "total_steps": 90, "loss": 4.4, "elapsed_time": "5:{n:02}:13"}}', 6.0),
        ('{{"loss": 1.2, "memory(GiB)": 22.5, "train_speed(iter/s)": 0.25, "global_step/max_steps": "{n}/9"}}', 4.0),
    ],
)
def test_lines_of_trainers_with_clocks_and_speeds(entry: str, step_s: float) -> None:
    report = read_log("\n".join(entry.format(n=n) for n in range(1, 9)))
    assert (report.step_s, report.outcome) == (pytest.approx(step_s), "ok")


@pytest.mark.parametrize(
    "name", ["csv", "rates", "wandb export", "wandb history", "mlflow metric", "mlflow export", "mlflow times"]
)
def test_tables_of_metrics(name: str, tmp_path: Path) -> None:
    file, text = table(name)
    (tmp_path / file).write_text(text)
    report = read_log(tmp_path / file)
    assert report.step_s == pytest.approx(0.5)
    assert report.last_step == 9
    assert report.outcome == "ok"
    assert report.peak_bytes == (30.5 * GIB if name == "csv" else None)


@pytest.mark.parametrize(
    "text",
    [
        LOSSES,
        "Collecting torch==2.9.1\n  Downloading torch-2.9.1.whl (1.2 MB)",
        "hello\nworld",
        "a,b\n1,2",
        '{"loss": 1}',
        "{not json",
        "\x00\x01",
        "step 4: loss 1.1",
    ],
)
def test_what_is_not_understood_is_refused_with_a_sentence(text: str) -> None:
    report = read_log(text)
    assert report.outcome == "no progress"
    assert report.step_s is None
    assert "no line" in report.evidence[0]


@pytest.mark.parametrize(
    "text",
    [
        "Training: 5%|#| 3/9 [00:01<00:02, ..00s/it]",
        "Training: 5%|#| 3/9 [00:01<00:02, 1.2.3it/s]",
        "[2026-13-02 00:00:11] [INFO] step=3, skipped=0\n[2026-01-32 99:00:12] [INFO] step=4, skipped=0",
        "[0000-01-02 00:00:11] step: 3 loss: 1 tps: 4\n[2026-01-02 00:00:11.\u0661] step: 4 loss: 1 tps: 4",
        f"completed step: {'9' * 400}, seconds: 1e999",
        "step,step_time_s\n1,2,3,4\n5,x,7",
        '{"key": ["step_time"], "value": 1}',
        '{"key": 5, "value": {"a": 1}}',
        '{"step_time": ' + "[" * 5000,
        "cuda_max_memory_reserved: 9" + "9" * 400 + "G",
    ],
)
def test_a_log_with_numbers_that_are_none_is_read(text: str) -> None:
    read_log(text)
    read_log(f"{text}\n{log_of(megatron)}")
    read_log(text, pattern=r"(?P<step_s>\S+) (?P<peak_gib>\S+)")


def test_a_log_of_many_lines_without_steps_is_read_in_time() -> None:
    assert read_log("x" * 200_000 + "\n" + "iteration 3/ " * 20_000).outcome == "no progress"


@pytest.mark.parametrize("line", FRAMEWORKS, ids=lambda line: line.__name__)
def test_a_single_line_is_a_log(line: Callable[[int], str]) -> None:
    framework, _ = FRAMEWORKS[line]
    report = read_log("\n".join(line(step) for step in (2, 3)))
    assert report.framework == framework
    assert report.step_s == pytest.approx(0.5, rel=0.01)


def test_prefixes_and_colours_go() -> None:
    assert clean_lines("3: \x1b[1m[rank3]:hello\x1b[0m\r\n[1,0]<stdout>:there") == ["hello", "there"]
