"""``search --trees``: trees beside the rows of a board, what they gain, and files that ``simulate`` reads."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.search.answer.refine import refine
from forerun.search.answer.searches import search_request
from forerun.search.answer.trees import with_trees
from forerun.search.board.requested import TreeRows
from forerun.search.cli import main
from forerun.search.explore.trees.judge import Judge
from forerun.search.explore.trees.tree_search import Start, best_around
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.simulator.events.trees import simulate_tree
from forerun.simulator.score_table import Floats
from forerun.spaces.strategies import Context, Recompute, StrategyTable, parse_strategy
from forerun.spaces.strategies.software import running
from forerun.spaces.trees import legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.document import parse_tree
from forerun.spaces.trees.vary import Variation

TIGHT = Request(
    model="llama3-8b",
    cluster="dgx-a100-40",
    gpus="8",
    global_batch=64,
    seq_len=8192,
    top=6,
    overrides={"cp": ["1"], "zero": ["1"], "vpp": ["1"], "split": ["even"]},
)
COMMAND = [
    *("search", "llama3-8b", "--cluster", "dgx-a100-40", "--gpus", "8", "--global-batch", "64", "--seq-len", "8192"),
    *("--set", "cp=1", "--set", "zero=1", "--set", "vpp=1", "--set", "split=even", "--top", "6"),
]


@pytest.fixture(scope="module")
def setting() -> Setting:
    return resolve(TIGHT)


@pytest.fixture(scope="module")
def found(setting: Setting) -> TreeRows:
    board = with_trees(refine(search_request(TIGHT), setting, 6), setting, 1)
    assert board.trees is not None
    return board.trees


def test_as_few_layers_are_recomputed_as_the_memory_asks_for(setting: Setting) -> None:
    """A strategy that fits only with recomputation: with a layer less, the stage that it stood on is too full."""
    judge, start = Judge(setting.context), parse_strategy("tp2 pp2 dp2 mbs1 zero1 recompute=full")
    fitted = judge.fit(Variation(strategy=start, recompute=Recompute.NONE))
    assert fitted is not None
    played = judge.play(fitted)
    assert played is not None and played.scores.fits[0]

    counts = played.variation.recomputed
    assert 0 < counts[0] < 16
    fewer = judge.flat(replace(played.variation, recomputed=(counts[0] - 1, *counts[1:])))
    assert fewer is not None
    assert fewer.peaks_bytes()[0] > setting.context.memory_limit_bytes
    whole = judge.flat(Variation(strategy=start))
    assert whole is not None
    assert played.step_s < simulate_tree(setting.context, whole.strategies).events.step_time_s


def test_a_tree_betters_its_start(setting: Setting) -> None:
    start = parse_strategy("tp2 pp2 dp2 mbs1 zero1 recompute=full")
    judge = Judge(setting.context)
    flat = judge.flat(Variation(strategy=start))
    assert flat is not None
    step_s = simulate_tree(setting.context, flat.strategies).events.step_time_s
    best = best_around(judge, Start(start, step_s), within_s=1e9)

    assert best is not None
    assert best.step_s < 0.97 * step_s
    assert best.scores.fits[0]


class _Slower:
    """A calibration that finds every step a tenth longer."""

    def factor(self, context: Context, table: StrategyTable, time_s: Mapping[str, Floats]) -> Floats:
        return np.full(len(table), 1.1)

    def memory(self, context: Context, table: StrategyTable, memory_bytes: Mapping[str, Floats]) -> None:
        """Know nothing of memory."""


def test_a_calibration_corrects_trees_as_their_starts(setting: Setting) -> None:
    variation = Variation(strategy=parse_strategy("tp4 pp1 dp2 mbs1 zero1 sp"))
    steps = []
    for correction in (None, _Slower()):
        judge = Judge(replace(setting.context, correction=correction))
        fitted = judge.fit(variation)
        played = None if fitted is None else judge.play(fitted)
        assert played is not None
        steps.append(played.step_s)

    assert steps[1] == pytest.approx(1.1 * steps[0])


@pytest.mark.slow
def test_rows_are_ranked_among_the_flat_ones_and_read_back(setting: Setting, found: TreeRows) -> None:
    assert found.rows
    for each in found.rows:
        context = running(setting.context, parse_strategy(each.start).software)
        tree = legal_tree(context, resolve_tree(parse_tree(each.yaml), model_layers(context.model)))
        again = simulate_tree(context, tree).scores

        assert again.step_time_s[0] == pytest.approx(each.row.step_time_s, rel=1e-12)
        assert again.fits[0] and each.row.fits
        assert each.changes
        assert each.start_s is None or each.start_s > each.row.step_time_s
    steps = [each.row.step_time_s for each in found.rows]
    assert steps == sorted(steps)


@pytest.mark.slow  # a whole search for trees
def test_the_command_writes_what_simulate_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main([*COMMAND, "--trees", "1", "--json", "--out", str(out)]) == 0
    trees = json.loads(capsys.readouterr().out)["trees"]
    assert {"starts", "judged", "simulated", "gain", "rows"} == set(trees)
    row = trees["rows"][0]
    assert (out / "trees" / "1.yaml").read_text() == row["tree"]

    request = ["llama3-8b", "--cluster", "dgx-a100-40", "--global-batch", "64", "--seq-len", "8192"]
    told = next(line for line in row["tree"].splitlines() if line.startswith("# simulate with "))
    request += told.removeprefix("# simulate with ").split()
    assert main(["simulate", *request, "--tree", str(out / "trees" / "1.yaml"), "--json"]) == 0
    played = json.loads(capsys.readouterr().out)
    assert played["step_time_s"] == pytest.approx(row["step_time_s"], rel=1e-12)
    assert played["peak_memory_gib"] == pytest.approx(row["peak_memory_gib"], rel=1e-12)


@pytest.mark.slow  # a whole search for trees
def test_the_terminal_says_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--trees", "1"]) == 0
    text = capsys.readouterr().out

    assert "strategy trees: " in text
    assert "recomputed whole" in text
    assert "#1 by closed forms" not in text  # no news beside rank 1
