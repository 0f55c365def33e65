"""``forerun replay`` as users meet it."""

import json
from pathlib import Path

import pytest
from synthetic_runs import data_parallel

from forerun.search.cli import main
from forerun.search.measured.profiling import read_profile
from forerun.search.scale.profile import read_profile as read_gradient_profile
from forerun.simulator.replay import analyse_files
from forerun.spaces.units import format_seconds

TRACES = Path(__file__).parents[1] / "simulator" / "traces" / "dp-transformer"


def test_one_json_document(tmp_path, capsys):
    data_parallel(tmp_path, ranks=3, steps=3, offset_s=0.05)
    assert main(["replay", str(tmp_path), "--json", "--link", "25Gbit/s"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert not err and abs(document["replay_error"]) < 0.01 and document["clocks"]["hosts"] == 3
    assert main(["replay", str(tmp_path), "--json", "--no-align"]) == 0
    apart = json.loads(capsys.readouterr().out)
    assert apart["step_time_s"] > 1.3 * document["step_time_s"]


def test_tables_and_timeline(tmp_path, capsys):
    data_parallel(tmp_path, ranks=3, steps=6, slow=(1, 3, 1.3))
    timeline = tmp_path / "out.trace"
    assert main(["replay", str(tmp_path), "--timeline", str(timeline), "--top", "3"]) == 0
    out, err = capsys.readouterr()
    averaged = analyse_files([tmp_path]).averaged
    assert averaged is not None and f"mean operator times: {format_seconds(averaged.replayed_step_s)} (" in out
    for word in ("3 ranks, 6 steps", "Critical path", "Stragglers", "step 3", "all_reduce"):
        assert word in out
    assert "wrote" in err and json.loads(timeline.read_text())["traceEvents"]


@pytest.mark.slow
def test_a_gradient_profile_is_what_scale_reads(tmp_path, capsys):
    """Of two ranks or of one alone: what a worker computes, with the bytes of its gradients."""
    for number, paths in enumerate(([TRACES], [TRACES / "rank0.json.gz"])):
        out = tmp_path / f"worker{number}.yaml"
        arguments = ["replay", *map(str, paths), "--gradient-profile", str(out), "--batch", "4", "--json"]
        assert main(arguments) == 0
        run = json.loads(capsys.readouterr().out)
        profile = read_gradient_profile(out)
        layer = 4 * 192 * 193 + 193 * 768 + 769 * 192 + 2 * 2 * 192  # of width 192, hidden width 768
        assert profile.total_bytes == 4 * 4 * layer and profile.batch == 4
        assert 0.5 * run["step_time_s"] < profile.step_s <= 1.05 * run["step_time_s"]
        assert profile.backward_s > profile.forward_s
        assert main(["scale", str(out), "--workers", "1,4", "--bandwidth", "1Gb/s", "--mode", "sync-ps", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["points"]) == 2
    assert main(["replay", str(TRACES), "--gradient-profile", str(tmp_path / "x.yaml")]) == 2
    assert "--batch" in capsys.readouterr().err


def test_ranks_of_two_runs_are_asked_about(tmp_path, capsys):
    """Each run has its own buckets, so that the messages of one find few partners in the other."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    one = data_parallel(tmp_path / "a", ranks=2, steps=2)
    other = data_parallel(tmp_path / "b", ranks=2, steps=2, buckets=0)
    assert main(["replay", str(one.paths[0]), str(other.paths[1])]) == 0
    assert "are these ranks of one run" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "more", [["--link", "0"], ["--link", "fast"], ["--top", "0"], ["--timeline", "/nowhere/x.json"]]
)
def test_bad_requests_end_with_2(tmp_path, capsys, more):
    data_parallel(tmp_path, ranks=2, steps=1)
    assert main(["replay", str(tmp_path), *more]) == 2
    assert capsys.readouterr().err.startswith("forerun: ")


def test_no_traces_and_torn_ones_end_with_2(tmp_path, capsys):
    assert main(["replay", str(tmp_path)]) == 2
    assert "no traces in" in capsys.readouterr().err
    made = data_parallel(tmp_path, ranks=1, steps=1)
    made.paths[0].write_bytes(made.paths[0].read_bytes()[:-40])
    assert main(["replay", str(tmp_path)]) == 2
    assert "is torn" in capsys.readouterr().err


def test_a_profile_of_links_is_predicted_with(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    data_parallel(tmp_path / "run", ranks=4, steps=3, reduce_s=2e-3, noise_s=1e-7)
    out = tmp_path / "links.yaml"
    assert main(["replay", str(tmp_path / "run"), "--cluster", "dgx-h100", "--profile-out", str(out)]) == 0
    told = capsys.readouterr().err  # 1 MB in 2 ms, as between hosts
    assert "1 kinds of message" in told and "times what they should between devices of dgx-h100" in told
    (line,) = read_profile(out).collectives
    assert line.name == "all_reduce node" and line.shape == (1e6, 4.0, 1.0)
    assert line.seconds == pytest.approx(2e-3, rel=0.01) and line.spread < 0.05
    simulate = ["simulate", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "16", "--seq-len", "2048", "--json"]
    simulate += ["--strategy", "tp4 dp2 mbs1"]
    assert main(simulate) == 0
    before = json.loads(capsys.readouterr().out)["step_time_s"]
    assert main([*simulate, "--profile", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] > before
    assert main(["replay", str(tmp_path / "run"), "--profile-out", str(out), "--force"]) == 2
    assert "--cluster" in capsys.readouterr().err


def test_nothing_to_keep_in_a_profile_is_told(tmp_path, capsys):
    data_parallel(tmp_path, ranks=2, steps=1, buckets=0)
    assert main(["replay", str(tmp_path), "--cluster", "dgx-h100", "--profile-out", str(tmp_path / "x.yaml")]) == 2
    assert "no message of the run" in capsys.readouterr().err
