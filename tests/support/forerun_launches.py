"""Launches of many kinds, for tests of the formats that write them."""

import dataclasses

from forerun_examples import dense_model, moe_model
from hypothesis import strategies as st

from forerun.search.formats import Launch
from forerun.search.formats.limits import canonical
from forerun.spaces.strategies import Placement, Recompute, Schedule, Split, StageRecompute, Strategy, parse_strategy
from forerun.spaces.workload import Workload

RECOMPUTES = tuple(Recompute(kind) for kind in (0, 1, 2, 4, 4 | 8, 1 | 64))
"""Choices of recompute: nothing, the attention core, all layers, and modules."""
DENSE, MIXTURE = dense_model(layers=24), moe_model(layers=30)


def launch_of(text: str, **workload: object) -> Launch:
    """Return the launch of a strategy of 128 sequences on nodes of eight devices."""
    strategy = parse_strategy(text)
    model = MIXTURE if strategy.ep > 1 else DENSE
    facts: dict[str, object] = {"global_batch": 128, "seq_len": 4096} | workload
    return Launch(strategy=strategy, model=model, workload=Workload(**facts), devices_per_node=8)  # type: ignore[arg-type]


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """Draw a launch whose strategy is its own canonical name; frameworks may still refuse it."""
    model = draw(st.sampled_from((DENSE, MIXTURE)))
    mixture = model is MIXTURE
    pp = draw(st.sampled_from((1, 2, 3, 4, 8)))
    custom = draw(st.booleans()) and pp > 1
    strategy = Strategy(
        dp=draw(st.sampled_from((1, 2, 4, 6, 16))),
        tp=draw(st.sampled_from((1, 2, 4, 8))),
        pp=pp,
        cp=draw(st.sampled_from((1, 2, 4))),
        ep=draw(st.sampled_from((1, 2, 4, 8))) if mixture else 1,
        etp=draw(st.sampled_from((1, 2, 4))) if mixture else 1,
        mbs=draw(st.sampled_from((1, 2, 4))),
        vpp=draw(st.sampled_from((1, 2, 3, 5))),
        schedule=draw(st.sampled_from(Schedule)),
        split=draw(st.sampled_from([split for split in Split if split != Split.LIGHT_MTP])),
        zero=draw(st.integers(0, 3)),
        shard=draw(st.sampled_from((0, 0, 2, 4, 8))),
        sp=draw(st.booleans()),
        recompute=draw(st.sampled_from(RECOMPUTES)),
        placement=draw(st.sampled_from(Placement)),
        layers_per_stage=_cut(draw, model.layer_count, pp) if custom else None,
    )
    if strategy.layers_per_stage is not None:
        strategy = dataclasses.replace(strategy, vpp=1, schedule=Schedule.ONE_F_ONE_B)
    strategy = canonical(strategy, model.layer_count)
    return Launch(
        strategy=_staged(draw, strategy),
        model=model,
        workload=Workload(
            global_batch=768,
            seq_len=draw(st.sampled_from((2048, 8192))),
            precision=draw(st.sampled_from(("bf16", "bf16", "fp16", "fp32", "fp8"))),
        ),
        devices_per_node=draw(st.sampled_from((4, 8))),
        name=draw(st.sampled_from(("run 1", "a'b\"c", "$(touch /tmp/x); rm -rf ~", "line\nbreak", "naïve ☃ #1"))),
    )


def _cut(draw: st.DrawFn, layers: int, stages: int) -> tuple[int, ...]:
    """Draw positive numbers of layers for each stage."""
    cuts = sorted(draw(st.lists(st.integers(1, layers - 1), min_size=stages - 1, max_size=stages - 1, unique=True)))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, layers], strict=True))


def _staged(draw: st.DrawFn, strategy: Strategy) -> Strategy:
    """Draw what differs between stages, where stages are whole: seldom, for few formats have words for it."""
    kind = draw(st.sampled_from(("alike", "alike", "alike", "block", "recompute", "tp")))
    if kind == "alike" or strategy.vpp > 1 or strategy.schedule != Schedule.ONE_F_ONE_B:
        return strategy
    if kind == "tp":
        fits = strategy.pp > 1 and strategy.dp % 2 == 0 and not strategy.shard
        return dataclasses.replace(strategy, second_tp=2 * strategy.tp) if fits else strategy
    block, none = StageRecompute(Recompute.FULL, 2), StageRecompute(Recompute.NONE)
    if kind == "recompute" and strategy.pp == 1:
        return strategy
    entries = (block,) * strategy.pp if kind == "block" else (block, *(none,) * (strategy.pp - 1))
    return dataclasses.replace(strategy, recompute=Recompute.NONE, stage_recompute=entries)
