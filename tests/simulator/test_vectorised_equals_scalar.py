"""The vectorised core gives what a slow, plain calculation of one strategy at a time gives."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_reference import PlainScore, plain_scores
from profiles import tries
from random_requests import candidates, contexts, legal_table

from forerun.simulator import MEMORY_PARTS, TIME_PARTS, ScoreTable, score
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, Split, StrategyTable, table_of
from forerun.spaces.workload import Workload

CLOSE = 1e-9


def differences(scores: ScoreTable, row: int, plain: PlainScore) -> list[str]:
    """Names of what differs by more than rounding: a whole, or a part in relation to its whole."""
    pairs = [(part, scores.time_s[part][row], plain.time_s[part], plain.step_time_s) for part in TIME_PARTS] + [
        (part, scores.memory_bytes[part][row], plain.memory_bytes[part], plain.peak_memory_bytes)
        for part in MEMORY_PARTS
    ]
    pairs.append(("step time", scores.step_time_s[row], plain.step_time_s, plain.step_time_s))
    pairs.append(("peak memory", scores.peak_memory_bytes[row], plain.peak_memory_bytes, plain.peak_memory_bytes))
    live = plain.stages[int(scores.peak_stage[row])].live_bytes
    pairs.append(("peak stage", live, plain.stages[plain.peak_stage].live_bytes, live))
    return [f"{name}: {fast} against {slow}" for name, fast, slow, whole in pairs if abs(fast - slow) > CLOSE * whole]


def check(context: Context, table: StrategyTable) -> None:
    scores = score(context, table)
    for row in range(len(table)):
        strategy = table.strategy(row)
        found = [differences(scores, row, plain) for plain in plain_scores(context, strategy)]
        assert [] in found, (str(strategy), found)


@pytest.mark.slow  # the scalar reference of many requests
@settings(max_examples=tries(60))
@given(st.data())
def test_random_candidates_of_random_requests(data: st.DataObject) -> None:
    context = data.draw(contexts())
    check(context, data.draw(candidates(context, 5, whole=True)))


@settings(max_examples=tries(15))
@given(st.data())
def test_layers_named_stage_by_stage(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 3, whole=True))
    layers = context.model.layer_count
    named = []
    for strategy in map(table.strategy, range(len(table))):
        if strategy.vpp == 1:
            cuts = sorted(
                data.draw(st.lists(st.integers(0, layers), min_size=strategy.pp - 1, max_size=strategy.pp - 1))
            )
            stages = tuple(int(count) for count in np.diff([0, *cuts, layers]))
            named.append(replace(strategy, split=Split.EVEN, layers_per_stage=stages))
        named.append(strategy)
    check(context, table_of(named))


@pytest.mark.parametrize(
    "model,framework",
    [
        ("deepseek-v2-lite", "megatron-lm"),
        ("deepseek-v3", "generic"),
        ("deepseek-v3", "hai-llm"),
        ("qwen3-30b-a3b", "nemo-blackwell"),
        ("gemma-2-9b", "torchtitan"),
        ("mixtral-8x7b", "deepspeed"),
        ("gpt-oss-20b", "nanotron"),
        ("gpt3-13b", "megatron-deepspeed"),
        ("bert-large", "nemo"),
        ("t5-large", "generic"),
        ("vit-h-14", "fsdp"),
        ("qwen3-0.6b", "generic"),
    ],
)
def test_models_of_the_catalogue(model: str, framework: str) -> None:
    context = Context(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=32, seq_len=4096),
        framework=load_framework(framework),
    )
    table = legal_table(context, 16, whole=True)
    check(context, table.take(np.linspace(0, len(table) - 1, 4).astype(int)))


def test_a_difference_would_be_seen() -> None:
    context = Context(
        model=load_model("llama3-8b"),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=32, seq_len=4096),
        framework=load_framework("megatron-lm"),
    )
    table = legal_table(context, 16, whole=True).take(slice(0, 1))
    slower = replace(context, framework=replace(context.framework, host_step_s=context.framework.host_step_s * 1.001))
    [plain] = plain_scores(slower, table.strategy(0))

    assert any(name.startswith("step time") for name in differences(score(context, table), 0, plain))
