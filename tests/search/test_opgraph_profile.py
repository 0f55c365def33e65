"""What a machine was measured to take, for operator graphs: what is asked for, and what a search makes of it."""

import dataclasses
import json
from pathlib import Path

import pytest
from split_cases import graph_setting

from forerun.search.cli import main
from forerun.search.measured.profiling import Profile
from forerun.search.measured.profiling.document import Line, write_profile
from forerun.search.measured.profiling.operators import operators_of, share_measured
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import score_table, table_of_splits
from forerun.spaces.opgraph.mixture import parse_mixture
from forerun.spaces.opgraph.split import parse_split

DATA = parse_split("data4")


def context(model: str = "alexnet") -> GraphContext:
    return dataclasses.replace(graph_setting(model, "abci-v100", 32).context, global_batch=32)


def profile(made: GraphContext, factor: float) -> Profile:
    lines = tuple(
        Line(name=one.name, shape=one.shape, seconds=factor * one.fitted_s, spread=0.01, fitted_s=one.fitted_s)
        for one in operators_of(made, [DATA])
    )
    device = made.cluster.device.name
    return Profile(source="p.yaml", device=device, made={}, operators=lines, collectives=(), skipped={})


def test_every_product_and_pass_is_asked_for_once() -> None:
    made = context()
    names = [one.name for one in operators_of(made, [DATA])]
    assert {name.split()[0] for name in names} == {"conv", "pass"}
    weighted = {operator for operator in made.model.operators if operator.macs}
    assert len({one.shape for one in operators_of(made, [DATA]) if one.name == "conv forward fp32"}) == len(
        {dataclasses.replace(operator, name="", inputs=()) for operator in weighted}
    )
    cut = operators_of(made, [DATA, parse_split("filter4"), parse_mixture("data4, linear*: filter4", made.model)])
    assert set(names) == {one.name for one in cut} and len(cut) > len(names)


@pytest.mark.parametrize("model", ["alexnet", "resnet50", "vit-b-32", "dlrm-516m"])
def test_a_machine_half_as_fast_takes_twice_as_long(model: str) -> None:
    made = context(model)
    slower, notes = profile(made, 2.0).applied(made)
    assert "operators" in notes[0]
    for text in ("data4", "data2 filter2"):
        split = parse_split(text)
        here, there = (score_table(one, table_of_splits(one, [split])) for one in (made, slower))
        assert there.device_s == pytest.approx(2 * here.device_s, rel=1e-6)
        assert there.time_s["update"] == pytest.approx(2 * here.time_s["update"], rel=1e-6)
    share, known, count = share_measured(slower, DATA)
    assert (share, known) == (pytest.approx(1.0), count)


def test_a_profile_of_a_file_is_used_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    write_profile(path, profile(context(), 3.0))
    words = "simulate alexnet --cluster abci-v100 --global-batch 32 --strategy data4 --json".split()
    steps = []
    for more in ([], ["--profile", str(path)]):
        assert main([*words, *more]) == 0
        steps.append(json.loads(capsys.readouterr().out))
    assert steps[1]["step_time_s"] > 2 * steps[0]["step_time_s"]
    assert any("profile p.yaml" in note for note in steps[1]["notes"])
    words[0] = "search"
    assert main([*words[:-3], "--gpus", "4", "--profile", str(path)]) == 0
    assert "of the operator time of" in capsys.readouterr().out


@pytest.mark.parametrize(
    "shape",
    [
        (2, 8, 16, 9, 64, 64, 1, 3, 1),
        (2, 8, 8, 9, 64, 16, 8, 3, 1),
        (2, 4, 4, 27, 64, 64, 1, 4, 1),
        (4, 32, 8, 1, 6, 6, 1, 1, 1),
    ],
)
def test_torch_runs_all_three_directions(shape: tuple[float, ...]) -> None:
    pytest.importorskip("torch")
    from forerun.search.measured.profiling.operators import ProfiledOperator
    from forerun.search.measured.profiling.runners import runner

    batch, channels, filters, window, _, outside, groups, *_ = map(int, shape)
    made = [
        runner(ProfiledOperator(name=f"conv {way} fp32", shape=shape, fitted_s=1.0), "fp32", "cpu")()
        for way in ("forward", "data_gradient", "weight_gradient")
    ]
    assert made[0].numel() == batch * filters * outside
    assert made[1][0].numel() == batch * channels * shape[4] and made[1][1] is None
    assert made[2][1].numel() == channels * filters // groups * window
