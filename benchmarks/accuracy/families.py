"""Which constants are fitted together, on which runs, and what is left out of these in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import constants
from constants import Constant
from targets import dense

from forerun.search.measured.validate import MeasuredRun
from forerun.simulator.costs.attention import MATERIALISED
from forerun.spaces.models import parameter_count

Key = Callable[[MeasuredRun], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Constants that are fitted together, the runs they act on, and what is left out of them in turn."""

    title: str
    constants: tuple[Constant, ...]
    acts_on: Callable[[MeasuredRun], bool]
    parts: tuple[str, ...]
    even: bool = False
    memory: bool = False
    joint: bool = False
    """The constants act within one maximum, so that their effects cannot be added."""


def _bin(value: float, bounds: Sequence[float], unit: str) -> str:
    """Return the interval a value lies in, such as "8 to 32"."""
    above = next((bound for bound in bounds if value <= bound), None)
    below = max((bound for bound in bounds if bound < value), default=None)
    if above is None:
        return f"over {below:g}{unit}"
    return f"up to {above:g}{unit}" if below is None else f"{below:g} to {above:g}{unit}"


PARTS: dict[str, Key] = {
    "model": lambda run: run.cells["model"],
    "size": lambda run: _bin(parameter_count(run.context.model) / 1e9, (2, 5, 10, 20, 50, 100), "B"),
    "GPUs": lambda run: _bin(run.strategy.devices, (8, 16, 32, 64, 128, 256), ""),
    "sequence": lambda run: _bin(run.context.workload.seq_len, (2048, 8192, 32768), ""),
    "device": lambda run: run.cells["device"],
    "table": lambda run: run.file,
    "tensor": lambda run: f"tp {run.strategy.tp}",
    "model and GPUs": lambda run: f"{run.cells['model']} on {run.cells['gpus']}",
}
"""What can be left out, by name."""


LAUNCH_TABLES = (
    "aleph_alpha_layouts",
    "bigscience",
    "korthikanti2022",
    "llm_foundry",
    "lucie",
    "simumax_b200",
    "vocab_parallel",
    "vtrain_multi",
)
"""Tables of high trust: those with large errors of another kind (T4, slow networks) would drag the launch costs."""


def _launches(run: MeasuredRun) -> bool:
    return dense(run) and run.file in LAUNCH_TABLES and not run.cells["device"].startswith("v100")


def _small(run: MeasuredRun) -> bool:
    """Small models at the pace of the host; jobs on GB200 that take six times as long as their likes wait for something
    else (20 ms a layer and microbatch lie between the two)."""
    strategy, context = run.strategy, run.context
    if run.file != "mcore_functional_tests" or context.moe or not run.step_time_s:
        return False
    microbatches = context.workload.global_batch / (strategy.dp * strategy.mbs)
    return run.step_time_s < 0.02 * microbatches * context.model.layer_count / strategy.pp


def _hopper(run: MeasuredRun) -> bool:
    """Parts of 700 W with constants of Hopper."""
    return run.context.cluster.device.name in ("h100-sxm", "h200-sxm", "h800-sxm")


FAMILIES = (
    Family(
        title="nanotron's host and steps",
        constants=constants.NANOTRON,
        acts_on=lambda run: run.context.framework.name == "nanotron",
        parts=("model", "GPUs"),
        joint=True,
    ),
    Family(
        title="launch costs of the other frameworks",
        constants=constants.LAUNCHES,
        acts_on=_launches,
        parts=("table", "size", "GPUs", "device"),
        even=True,
    ),
    Family(
        title="FlashAttention in Triton",
        constants=constants.TRITON,
        acts_on=lambda run: run.context.framework.attention == "flash_triton" and not _hopper(run),
        parts=("size", "sequence", "device"),
    ),
    Family(
        title="FlashAttention in Triton on Hopper",
        constants=constants.TRITON_HOPPER,
        acts_on=lambda run: run.context.framework.attention == "flash_triton" and _hopper(run),
        parts=("size", "sequence"),
    ),
    Family(
        title="Hopper clock in 16 bit",
        constants=constants.HOPPER,
        acts_on=lambda run: dense(run) and _hopper(run) and run.context.workload.precision in ("bf16", "fp16"),
        parts=("table",),
        even=True,
    ),
    Family(
        title="FlashAttention 1",
        constants=constants.FLASH1,
        acts_on=lambda run: run.context.framework.attention == "flash1",
        parts=("GPUs", "table"),
    ),
    Family(
        title="heads that miss the matrix units",
        constants=constants.UNALIGNED,
        acts_on=lambda run: (
            run.context.attention in MATERIALISED and run.context.model.layers[0].attention.head_dim % 8 > 0
        ),
        parts=("model",),
    ),
    Family(
        title="wait for the slowest replica",
        constants=constants.REPLICAS + constants.AMPERE + constants.HOPPER,
        acts_on=lambda run: dense(run) and (_hopper(run) or run.context.cluster.device.name.startswith("a100")),
        parts=("table", "GPUs"),
        even=True,
    ),
    Family(
        title="V100 clock",
        constants=constants.VOLTA,
        acts_on=lambda run: run.context.cluster.device.name.startswith("v100") and not run.context.moe,
        parts=("table",),
        even=True,
    ),
    Family(
        title="T4 clock, kernel sockets",
        constants=constants.TURING,
        acts_on=lambda run: run.context.cluster.device.name == "t4",
        parts=("tensor",),
    ),
    Family(
        title="a NIC for eight devices",
        constants=constants.COPIED,
        acts_on=lambda run: run.file == "dlperf_gpt",
        parts=("tensor",),
    ),
    Family(
        title="speed of hosts",
        constants=constants.HOSTS,
        acts_on=_small,
        parts=("tensor", "device"),
    ),
    Family(
        title="A100 clock",
        constants=constants.AMPERE,
        acts_on=lambda run: run.context.cluster.device.name.startswith("a100-sxm") and not run.context.moe,
        parts=("table",),
        even=True,
    ),
    Family(
        title="Blackwell clock in 8 bit",
        constants=constants.BLACKWELL,
        acts_on=lambda run: (
            run.context.cluster.device.name.startswith(("b200", "b300", "gb200", "gb300"))
            and run.context.workload.precision in ("fp8", "mxfp8")
        ),
        parts=("table", "device"),
        even=True,
    ),
    Family(
        title="4-bit products",
        constants=constants.FOUR_BIT,
        acts_on=lambda run: run.context.workload.precision == "nvfp4" and not run.context.moe,
        parts=("table", "device"),
        even=True,
    ),
    Family(
        title="memory of Aleph Alpha's trainer",
        constants=constants.OWN_TRAINER,
        acts_on=lambda run: run.file == "aleph_alpha_layouts",
        parts=("model and GPUs",),
        memory=True,
    ),
    Family(
        title="experts' launch cost",
        constants=constants.EXPERTS,
        acts_on=lambda run: run.context.moe and run.context.framework.host_expert_s > 0,
        parts=("table", "device"),
        even=True,
    ),
    Family(
        title="memory of Megatron-DeepSpeed",
        constants=constants.DEEPSPEED_MEMORY,
        acts_on=lambda run: run.file == "bigscience" and run.context.framework.name == "megatron-deepspeed",
        parts=("size", "device"),
        memory=True,
    ),
    Family(
        title="nanotron's memory",
        constants=constants.NANOTRON_MEMORY,
        acts_on=lambda run: run.context.framework.name == "nanotron",
        parts=("model", "GPUs"),
        memory=True,
    ),
)
