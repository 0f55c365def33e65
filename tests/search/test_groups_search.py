"""The search on groups of nodes that differ: as good as looking at everything, and clear about what it refuses."""

import itertools
import json
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from forerun.search.answer.searches import search_groups
from forerun.search.cli import main
from forerun.search.explore.groups.simulated_plans import simulate_groups
from forerun.search.order.worth import worth_of
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.models import load_model

SMALL = ["--global-batch", "16", "--seq-len", "2048"]


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    path = tmp_path / "mixed.yaml"
    groups = [{"cluster": "dgx-h100", "devices": 8}, {"cluster": "dgx-a100-40", "devices": 8}]
    path.write_text(yaml.safe_dump({"groups": groups}))
    return str(path)


@pytest.mark.slow  # simulates every plan
def test_the_best_of_everything_is_found(mixed: str) -> None:
    fields = {"model": "qwen3-0.6b", "cluster": mixed, "global_batch": 16, "seq_len": 2048}
    own = {"tp": ["2", "4"], "cp": ["1"], "mbs": ["1"], "recompute": ["none"], "sp": ["1"], "zero": ["1"]}
    board = search_groups(Request(**fields, overrides=own))
    setting = resolve(Request(**fields, overrides=own), groups=True)
    layers = load_model("qwen3-0.6b").layer_count
    times = {}
    for degrees, pp in (("tp2 pp2 dp4", 2), ("tp4 pp4 dp1", 4)):
        near = range(layers // pp - 6, layers // pp + 9)
        for split in itertools.product(near, repeat=pp - 1):
            if pp == 4 and (split[0] != split[1] or layers - sum(split) not in near):
                continue
            counts = (*split, layers - sum(split))
            if min(counts) > 0:
                zero = "zero1 " if "dp4" in degrees else ""
                text = f"{degrees} mbs1 {zero}sp layers={','.join(map(str, counts))}"
                times[text] = simulate_groups(setting, text)[0].step_time_s

    assert len(times) > 20
    assert board.rows[0].step_time_s <= min(times.values()) * (1 + 1e-9)


@pytest.fixture
def seven_layers(tmp_path: Path) -> str:
    document = yaml.safe_load((files("forerun.spaces.models") / "data" / "qwen3-0.6b.yaml").read_text())
    for layers in document["layers"]:
        layers["count"] = 7
    path = tmp_path / "seven.yaml"
    del document["published_parameters"]
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.slow  # simulates every plan
@pytest.mark.parametrize("devices", [(16, 8), (8, 32), (8, 8, 8)])
def test_stages_that_divide_neither_layers_nor_each_other_are_as_good_as_the_best_of_all(
    tmp_path: Path, seven_layers: str, devices: tuple[int, ...]
) -> None:
    """Seven layers on three or five stages: every split of every degree is simulated, and none is faster."""
    path = tmp_path / "groups.yaml"
    names = ("dgx-h100", "dgx-a100-80", "dgx-a100-40")
    groups = [{"cluster": name, "devices": count} for name, count in zip(names, devices, strict=False)]
    path.write_text(yaml.safe_dump({"groups": groups}))
    own = {"tp": ["2", "4", "8"], "cp": ["1"], "mbs": ["1"], "recompute": ["none"], "sp": ["1"], "zero": ["1", "0"]}
    request = Request(model=seven_layers, cluster=str(path), global_batch=48, seq_len=2048, overrides=own)
    board, setting, pp = search_groups(request), resolve(request, groups=True), sum(devices) // 8
    steps = []
    for tp, cuts in itertools.product((2, 4, 8), itertools.combinations(range(1, 7), pp - 1)):
        counts = [high - low for low, high in itertools.pairwise((0, *cuts, 7))]
        sharding = "" if tp == 8 else " zero1"
        text = f"tp{tp} pp{pp} dp{8 // tp} mbs1{sharding} sp layers={','.join(map(str, counts))}"
        try:
            steps.append(simulate_groups(setting, text)[0].step_time_s)
        except RequestError:  # the batch does not divide
            continue

    assert len(steps) >= 15
    assert board.rows[0].step_time_s <= min(steps) * (1 + 1e-9)


@pytest.mark.parametrize(
    "shares", [(1, 2), *(pytest.param(shares, marks=pytest.mark.slow) for shares in ((2, 1), (1, 3), (3, 2)))]
)
def test_mixes_whose_stages_do_not_divide_the_layers_are_planned(tmp_path: Path, shares: tuple[int, int]) -> None:
    """Whole nodes of either kind, 28 layers on three, four or five stages; one plan by hand fits."""
    path = tmp_path / "groups.yaml"
    names = ("dgx-h100", "dgx-a100-80")
    groups = [{"cluster": name, "devices": 8 * share} for name, share in zip(names, shares, strict=True)]
    path.write_text(yaml.safe_dump({"groups": groups}))
    own = {"tp": ["8"], "cp": ["1"], "mbs": ["1"], "recompute": ["none"]}
    request = Request(model="qwen3-0.6b", cluster=str(path), global_batch=16, seq_len=2048, overrides=own)
    pp = sum(shares)
    layers = ",".join(map(str, (28 - (pp - 1) * (28 // pp), *[28 // pp] * (pp - 1))))

    assert simulate_groups(resolve(request, groups=True), f"tp8 pp{pp} dp1 mbs1 sp layers={layers}")[0].fits
    assert search_groups(request).rows[0].fits


@pytest.mark.slow  # a search event by event
def test_the_fast_group_holds_more_layers_and_the_other_still_helps(mixed: str) -> None:
    few = {"cp": ["1"], "mbs": ["1"]}
    request = Request(model="llama3-8b", cluster=mixed, global_batch=64, seq_len=4096, overrides=few)
    board, context = search_groups(request), resolve(request, groups=True).context
    layers = board.rows[0].strategy.layers_per_stage or ()
    half = len(layers) // 2

    assert sum(layers[:half]) > 1.5 * sum(layers[half:])
    worth = [worth_of(context, row.strategy, row.step_time_s, row.oom_risk) for row in board.rows]
    assert worth == sorted(worth)
    assert all(row.fits for row in board.rows)
    alone = [note for note in board.notes if "alone" in note]
    assert len(alone) == 2 and "8 devices of dgx-h100 alone take" in alone[0]


@pytest.mark.slow  # two searches event by event
def test_recompute_may_differ_between_stages(mixed: str) -> None:
    own = {"tp": ["4", "8"], "cp": ["1"], "mbs": ["1"], "zero": ["1"]}
    request = Request(model="llama3-8b", cluster=mixed, global_batch=64, seq_len=8192, overrides=own)
    whole = search_groups(request)
    staged = search_groups(request, per_stage=("layers", "recompute"))

    assert staged.rows[0].step_time_s <= whole.rows[0].step_time_s * 1.001


@pytest.mark.slow  # two searches event by event
def test_equal_groups_are_searched_like_one_cluster(tmp_path: Path) -> None:
    path = tmp_path / "equal.yaml"
    path.write_text("groups:\n" + "  - {cluster: dgx-h100, devices: 8}\n" * 2)
    own = {"tp": ["4", "8"], "cp": ["1"], "mbs": ["1", "2"], "recompute": ["none", "full"]}
    request = Request(model="llama3-8b", cluster=str(path), global_batch=64, seq_len=4096, overrides=own)
    (first, *_) = search_groups(request).rows
    layers = first.strategy.layers_per_stage or ()

    assert max(layers) - min(layers) <= 3  # the head weighs some layers


@pytest.mark.slow
def test_the_command_prints_a_leaderboard_that_simulate_repeats(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--cluster", mixed, *SMALL, "--json"]
    assert main(["search", "qwen3-0.6b", *own, "--set", "recompute=none", "--set", "zero=1", "--set", "pp=2"]) == 0
    first = json.loads(capsys.readouterr().out)["leaderboard"][0]
    assert main(["simulate", "qwen3-0.6b", *own, "--strategy", first["strategy"]]) == 0
    again = json.loads(capsys.readouterr().out)

    assert again["step_time_s"] == pytest.approx(first["step_time_s"], rel=1e-9)
    assert again["peak_memory_gib"] == pytest.approx(first["peak_memory_gib"], rel=1e-9)


@pytest.mark.slow
def test_the_page_has_every_stage_on_its_own_group(mixed: str, tmp_path: Path) -> None:
    page, out = tmp_path / "page.html", tmp_path / "run"
    own = ["--set", "recompute=none", "--set", "zero=1", "--set", "pp=2", "--top", "2"]
    assert (
        main(["search", "qwen3-0.6b", "--cluster", mixed, *SMALL, *own, "--report", str(page), "--out", str(out)]) == 0
    )
    text = page.read_text(encoding="utf-8")

    for stage, name in enumerate(("dgx-h100", "dgx-a100-40")):
        assert text.count(f"stage {stage}, {name}") >= 2  # its memory and its timeline
    assert "limit 39.5 to 79.2 GiB" in text  # of stages
    assert "as the rows of the leaderboard were" in text
    assert "No stages" not in text and "No timeline" not in text
    for device in ("h100-sxm", "a100-sxm4-40"):
        assert f">{device}" in text
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    "more,message",
    [
        (["--gpus", "8"], "have 16 devices, all of which a search uses"),
        (["--refine"], "--refine is for equal nodes"),
        (["--sampler", "local"], "--sampler is for equal nodes"),
        (["--objective", "headroom"], "the fastest strategy is searched"),
        (["--per-stage", "tp"], "nodes that differ share tp; use --per-stage layers,recompute"),
        (["--per-stage", "layers,offload"], "nodes that differ share offload; use --per-stage layers,recompute"),
        (["--set", "vpp=2"], "lift the restriction of vpp"),
    ],
)
def test_what_groups_do_not_have_is_refused(
    more: list[str], message: str, mixed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "qwen3-0.6b", "--cluster", mixed, *SMALL, *more]) == 2
    assert message in capsys.readouterr().err


def test_nothing_that_fits_is_said(mixed: str) -> None:
    with pytest.raises(InfeasibleError, match=r"8 x dgx-h100 and 8 x dgx-a100-40.*nearest fix"):
        search_groups(Request(model="llama3-405b", cluster=mixed, global_batch=16, seq_len=2048))


def test_evaluations_bound_the_search(mixed: str) -> None:
    own = {"recompute": ["none"], "zero": ["1"], "pp": ["2"], "mbs": ["1", "2"]}
    board = search_groups(
        Request(model="qwen3-0.6b", cluster=mixed, global_batch=16, seq_len=2048, overrides=own), evaluations=3
    )

    assert board.space.feasible == 3 and any("because 3 were simulated" in note for note in board.notes)
    with pytest.raises(RequestError):
        search_groups(Request(model="qwen3-0.6b", cluster="nowhere", global_batch=16, seq_len=2048))
