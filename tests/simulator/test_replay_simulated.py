"""What forerun writes of a simulated step it reads again: a replay is that step, to rounding."""

from pathlib import Path

import pytest
from forerun_examples import request as small_request
from split_cases import graph_setting

from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.simulator.events import EventResult, simulate, write_chakra, write_trace
from forerun.simulator.replay import analyse_files
from forerun.spaces.opgraph.split import parse_split
from forerun.spaces.strategies import parse_strategy

STRATEGIES = (
    "tp2 pp4 dp4 mbs1 zero1",
    "pp2 dp2 mbs1 zero3",
    "pp2 dp4 mbs1 zero2 shard=2",
    "pp4 dp2 vpp2 schedule=interleaved",
    "pp4 dp2 vpp2 schedule=zb-v",
    "dp4 mbs2",
)


def same(path: Path, result: EventResult) -> None:
    replay = analyse_files([path]).replay
    assert replay.step_s == pytest.approx(result.step_time_s, rel=1e-9)
    assert replay.replayed_step_s == pytest.approx(result.step_time_s, rel=1e-9)


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.slow
def test_execution_traces_replay_to_the_simulated_step(text: str, tmp_path: Path) -> None:
    context, strategy = small_request(framework="generic", global_batch=32), parse_strategy(text)
    result = simulate(context, strategy)
    write_chakra(context, strategy, result, tmp_path)
    same(tmp_path, result)


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.slow
def test_timelines_replay_to_the_simulated_step(text: str, tmp_path: Path) -> None:
    result = simulate(small_request(framework="generic", global_batch=32), parse_strategy(text))
    write_trace(result, tmp_path / "step.json.gz")
    same(tmp_path, result)


@pytest.mark.parametrize("text", ["data8", "data2 filter4", "data2 pipeline4 segments4"])
def test_timelines_of_operator_graphs_do_too(text: str, tmp_path: Path) -> None:
    setting = graph_setting("alexnet", "dgx1-v100", 64)
    result = OPERATOR_GRAPHS.simulate(setting.context, parse_split(text))
    write_trace(result, tmp_path / "step.json")
    same(tmp_path, result)


def test_traces_are_found_in_folders_of_folders(tmp_path: Path) -> None:
    context, strategy = small_request(framework="generic", global_batch=32), parse_strategy("pp2 dp2 mbs1 zero1")
    result = simulate(context, strategy)
    (tmp_path / "flat").mkdir()
    write_chakra(context, strategy, result, tmp_path / "flat")
    for path in (tmp_path / "flat").glob("*.et"):
        device = path.name.split(".")[1]
        folder = tmp_path / "trial" / f"host{int(device) // 2}" / device
        folder.mkdir(parents=True)
        path.rename(folder / path.name)
        (folder / "forerun.groups.json").write_bytes((tmp_path / "flat" / "forerun.groups.json").read_bytes())
    same(tmp_path / "trial", result)
