"""Expert all-to-all under computation: what is left of it, what its kernels hold, and passes that have nothing beside
them."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator import score
from forerun.simulator.layer.times import unpaired_share
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.frameworks.switches import with_settings
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, Schedule, parse_strategy, table_of
from forerun.spaces.workload import Workload


def context(batch: int = 512, **settings: str) -> Context:
    profile = with_settings(load_framework("megatron-lm"), {"moe-overlap": "on", **settings})
    return Context(
        model=load_model("qwen3-235b-a22b"),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=batch, seq_len=4096),
        framework=profile,
    )


def expert_s(one: Context, text: str) -> float:
    """Seconds per microbatch that tokens take of a step."""
    strategy = parse_strategy(text)
    scores = score(one, table_of([strategy]))
    return float(scores.time_s["expert"][0]) * strategy.dp * strategy.mbs / one.workload.global_batch


@pytest.mark.parametrize(
    "schedule, share",
    [
        (Schedule.ONE_F_ONE_B, 8 / 64),
        (Schedule.INTERLEAVED, 8 / 64),
        (Schedule.DUALPIPE, 9.5 / 64),
        (Schedule.GPIPE, 1),
    ],
)
def test_passes_alone(schedule: Schedule, share: float) -> None:
    """Of 1F1B a rank runs pp forward passes before its first pair, or after its last one as many backward passes."""
    pp, microbatches = np.array([8.0]), np.array([64.0])
    assert unpaired_share(np.array([float(schedule)]), pp, microbatches)[0] == pytest.approx(share)
    assert unpaired_share(np.array([float(schedule)]), pp, np.array([4.0]))[0] == 1.0


def test_short_steps_hide_less() -> None:
    """With as many microbatches as stages no pass has another one beside it: as if nothing overlapped."""
    layout = "tp2 pp8 dp16 ep32 mbs1 zero1 sp split=light-ends"
    few, many = expert_s(context(128), layout), expert_s(context(8192), layout)
    alone = expert_s(context(128, **{"moe-overlap": "off"}), layout)
    assert many < few == pytest.approx(alone)


def _without_waits(made: Context) -> Context:
    """Return a context whose devices do not wait until hosts have read token counts, which nothing hides."""
    return replace(made, framework=replace(made.framework, expert_wait_s=0.0))


def test_kernels_of_the_dispatcher_slow_what_runs_beside_them() -> None:
    """20 of 132 multiprocessors: a hidden second costs 20/112 of one."""
    one, apart = (_without_waits(context(8192, **switches)) for switches in ({}, {"moe-overlap": "off"}))
    layout = "tp1 pp1 dp256 ep32 mbs1 zero1"
    free = replace(one, framework=replace(one.framework, expert_multiprocessors=0.0))
    alone = expert_s(apart, layout)
    without, held = expert_s(free, layout), expert_s(one, layout)
    # One of 32 microbatches has nothing beside it; of the others 0.8 hides.
    hidden = 0.8 * alone
    assert without == pytest.approx(alone - hidden * 31 / 32)
    assert held == pytest.approx(without + 20 / 112 * hidden * 31 / 32)


def test_multiprocessors_set_apart_are_missing_all_the_time() -> None:
    one = context(8192, dispatcher="alltoall")
    apart = replace(one, framework=replace(one.framework, reserves_expert_multiprocessors=True))
    layout = "tp1 pp1 dp256 ep8 mbs1 zero1"
    assert expert_s(apart, layout) > expert_s(one, layout)
