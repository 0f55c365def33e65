"""Over all stages, tensor and expert ranks of one replica stand the parameters of the model, and known copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.simulator.stages.parameters import stage_parameters
from forerun.simulator.stages.plan import PLAN_AXES, stage_plans
from forerun.spaces.models import embedding_parameters, layer_parameters, parameter_count
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, Schedule, StrategyTable


def on_all_devices(context: Context, table: StrategyTable) -> np.ndarray:
    """Parameters on the pp * tp devices of one replica; experts once however many expert-parallel groups there are."""
    keys = table.distinct(*PLAN_AXES)
    plans = stage_plans(context, table, keys.rows)
    tp, ep, etp = (table.column(axis).astype(float) for axis in ("tp", "ep", "etp"))
    found = stage_parameters(context, plans.blocks[:, :, keys.inverse], tp, ep, etp)
    return ((found.dense * tp + found.expert * ep * etp) * plans.multiplicity[:, keys.inverse]).sum(axis=0)


def left_out(model: Model) -> int:
    """Small vectors at the head that no device is charged with: biases, and the norm of a head transform."""
    biases = model.hidden if model.final_norm_bias else 0
    biases += model.vocab if model.lm_head_bias else 0
    if model.head_transform:
        biases += model.hidden + (2 if model.layers[-1].norm_bias else 1) * model.hidden
    return biases + model.classes + model.extra_parameters


def copied_per_tensor_rank(model: Model) -> int:
    """Parameters that every tensor rank holds whole."""
    layers = [(layer, layer.count) for layer in model.layers] + [(model.layers[-1], model.mtp_layers)]
    own = [(layer_parameters(layer, model.hidden), count) for layer, count in layers]
    total = sum(count * (one.router + one.replicated) for one, count in own)
    total += embedding_parameters(model) - model.vocab * model.hidden
    total += model.hidden * (1 + model.classes) + (model.hidden**2 if model.head_transform else 0)
    return total


def padding(model: Model, tp: int) -> int:
    """Rows that fill the vocabulary up to a multiple of 128 per tensor rank."""
    return -model.vocab % (128 * tp)


@pytest.mark.slow
@settings(max_examples=tries(60))
@given(st.data())
def test_random_requests(data: st.DataObject) -> None:
    context = data.draw(contexts())
    model, table = context.model, data.draw(candidates(context, 25))
    found = on_all_devices(context, table)
    for row in range(len(table)):
        strategy = table.strategy(row)
        if strategy.schedule == Schedule.DUALPIPE:
            continue
        copies = (strategy.tp - 1) * copied_per_tensor_rank(model)
        apart = model.tied_embeddings and strategy.pp > 1 and strategy.schedule != Schedule.ZB_V
        tables = 1 if model.tied_embeddings and not apart else 2
        copies += tables * padding(model, strategy.tp) * model.hidden
        copies += model.vocab * model.hidden if apart else 0
        expected = parameter_count(model) - left_out(model) + copies
        assert found[row] == pytest.approx(expected, rel=1e-12), str(strategy)


@settings(max_examples=tries(20))
@given(st.data())
def test_dualpipe_holds_every_layer_twice(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 40))
    table = table.take(np.flatnonzero(table.column("schedule") == Schedule.DUALPIPE))
    if not len(table):
        return
    tp = table.column("tp")
    once = parameter_count(context.model) - left_out(context.model) + (tp - 1) * copied_per_tensor_rank(context.model)
    padded = np.array([padding(context.model, int(one)) for one in tp]) * context.model.hidden
    tables = 1 if context.model.tied_embeddings else 2

    np.testing.assert_allclose(on_all_devices(context, table), 2 * (once + tables * padded), rtol=1e-12)
