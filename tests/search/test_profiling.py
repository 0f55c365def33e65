"""Profiles: what there is to measure, files and journals, output of nccl-tests, and measuring where torch is there."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from forerun.search.cli import main
from forerun.search.measured.profiling import operators_of, read_nccl_tests, read_profile, share_measured
from forerun.search.measured.profiling.extending import left_to_measure, profile_to_extend
from forerun.search.measured.profiling.journal import ProfilingJournal
from forerun.search.measured.profiling.messages import KIND_OF_TEST
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy

REQUEST = Request(model="llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096)
TRAINING = "llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096"

TEXT = """\
# nccl-tests version 2.17.1 nccl-headers=22705 nccl-library=22705
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 1048576 step: 4(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid 101010 on     node-a device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 101011 on     node-a device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.50    0.08    0.08       0    11.00    0.09    0.09       0
     1048576        262144     float     sum      -1    40.00   26.21   26.21       0    42.00   24.97   24.97     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.8
"""


def json_text(**changes: object) -> str:
    devices = [{"rank": rank, "hostname": f"node-{rank // 8}", "device": rank % 8} for rank in range(16)]
    line = {
        "size": 4096,
        "count": 1024,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": {"time": 30.0, "alg_bw": 0.1, "bus_bw": 0.2, "nwrong": 0.0},
        "in_place": {"time": 28.0, "alg_bw": 0.1, "bus_bw": 0.2, "nwrong": None},
        "actual_iterations": 20,
        "experiment_name": "all_gather_perf",
    }
    document = {"version": 2, "args": ["./all_gather_perf"], "config": {"ngpus": 1, "nthreads": 1, "devices": devices}}
    return json.dumps({**document, "results": [line], **changes})


def test_text_of_nccl_tests_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text(TEXT)
    small, large = read_nccl_tests(path)
    assert (small.kind, small.full_bytes, small.ranks, small.nodes) == ("all_reduce", 1024, 2, 1)
    assert small.seconds == pytest.approx(11e-6)
    assert large.seconds == pytest.approx(40e-6)


def test_a_rank_before_every_line_is_no_part_of_it(tmp_path: Path) -> None:
    plain, labelled = tmp_path / "out.txt", tmp_path / "labelled.txt"
    plain.write_text(TEXT)
    labelled.write_text("".join(f"0: {line}\n" for line in TEXT.splitlines()))

    assert read_nccl_tests(labelled) == read_nccl_tests(plain)


def test_json_of_nccl_tests_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json_text())
    (one,) = read_nccl_tests(path)
    assert (one.kind, one.full_bytes, one.ranks, one.nodes) == ("all_gather", 4096, 16, 2)
    assert one.seconds == pytest.approx(28e-6)


@pytest.mark.parametrize("program", sorted(KIND_OF_TEST))
def test_the_name_of_the_file_says_which_collective_where_the_text_does_not(program: str, tmp_path: Path) -> None:
    path = tmp_path / f"{program}_perf.log"
    path.write_text(TEXT.replace("# Collective test starting: all_reduce_perf\n", ""))
    assert {one.kind for one in read_nccl_tests(path)} == {KIND_OF_TEST[program]}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("out.txt", TEXT.replace("all_reduce_perf", "it"), "which collective"),
        ("all_reduce_perf.txt", "nothing here\n", "over 0 ranks"),
        ("out.txt", "\n".join(TEXT.splitlines()[:11]), "no line of measurements"),
        ("out.json", "{", "the text ends inside"),
        ("out.json", json_text(results=[{"size": 1}]), "which collective"),
        ("all_gather_perf.json", json_text(results=[{"size": "many", "out_of_place": {"time": 1}}]), "with -J"),
        ("out.json", json_text(results=[]), "no line of measurements"),
    ],
)
def test_other_files_are_refused(name: str, text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text.replace("./all_gather_perf", "./it") if "which" in reason else text)
    with pytest.raises(RequestError, match=reason):
        read_nccl_tests(path)


def test_every_operator_stands_once_slowest_first() -> None:
    setting = resolve(REQUEST)
    both = [parse_strategy("tp2 dp8 mbs1 zero1 sp"), parse_strategy("tp2 dp8 mbs1 zero1 sp recompute=full")]
    operators = operators_of(setting.context, both)
    keys = [one.key for one in operators]
    assert len(keys) == len(set(keys))
    times = [one.fitted_s for one in operators]
    assert times == sorted(times, reverse=True)
    kinds = {one.name.split()[1] for one in operators if one.name.startswith("gemm")}
    assert kinds == {"forward", "data_gradient", "weight_gradient"}
    # One layer of Llama has five products (query-key-value, output, gate and up, down, head), three times each.
    assert sum(one.name.startswith("gemm") for one in operators) == 15
    assert {one.name for one in operators if one.name.startswith("attention")} == {
        "attention flash forward bf16 causal",
        "attention flash backward bf16 causal",
    }
    assert len(operators_of(setting.context, setting.space())) > len(operators)


def profile_document(setting: object, factor: float) -> dict:  # type: ignore[type-arg]
    tables: dict = {}  # type: ignore[type-arg]
    strategy = parse_strategy("tp2 dp8 mbs1 zero1 sp")
    for one in operators_of(setting.context, [strategy]):  # type: ignore[attr-defined]
        tables.setdefault(one.name, []).append([*one.shape, factor * one.fitted_s, 0.01, one.fitted_s])
    return {"profile": 1, "device": "h100-sxm", "made": {}, "skipped": {}, "operators": tables, "collectives": {}}


def test_a_profile_takes_the_place_of_the_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = resolve(REQUEST)
    path = tmp_path / "h100.yaml"
    path.write_text(yaml.safe_dump(profile_document(setting, 2.0)))
    context, notes = read_profile(path).applied(setting.context)
    assert share_measured(context, parse_strategy("tp2 dp8 mbs1 zero1 sp"))[0] == 1.0
    share, known, count = share_measured(context, parse_strategy("tp4 dp4 mbs1 zero1 sp"))
    assert 0 <= share < 1
    assert known < count
    assert "measured" in notes[0]
    strategy = ["--strategy", "tp2 dp8 mbs1 zero1 sp", "--json"]
    rows = []
    for more in ([], ["--profile", str(path)]):
        assert main(["simulate", *TRAINING.split(), *strategy, *more]) == 0
        rows.append(json.loads(capsys.readouterr().out))
    assert rows[1]["breakdown_s"]["compute"] == pytest.approx(2 * rows[0]["breakdown_s"]["compute"], rel=1e-3)
    assert main(["search", *TRAINING.split(), "--profile", str(path), "--set", "tp=2", "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["request"]["notes"]
    assert any("% of the operator time" in note for note in notes)


def test_broken_profiles_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = profile_document(resolve(REQUEST), 1.0)
    name = next(iter(document["operators"]))
    for change, reason in (
        ({"device": "h200"}, "profile of h200"),
        ({"profile": 7}, "this version reads 1"),
        ({"operators": {name: [[1, 2]]}}, "a row has a shape"),
        ({"operators": {name: [[8, 8, 8, 1, -1.0, 0, 1.0]]}}, "above 0"),
        ({"operator": {}}, "did you mean operators"),
    ):
        path = tmp_path / "p.yaml"
        path.write_text(yaml.safe_dump({**document, **change}))
        assert main(["search", *TRAINING.split(), "--profile", str(path)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert reason in err


def test_a_journal_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    path, header = tmp_path / "p.partial", {"device": "h100-sxm"}
    with ProfilingJournal(path, header) as journal:
        journal.add({"key": "a", "seconds": 1.0})
        journal.add({"key": "b", "seconds": 2.0})
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        with ProfilingJournal(path, header) as journal:
            lines = whole[:cut].count(b"\n")
            assert list(journal.records) == ["a", "b"][: max(lines - 1, 0)]
            journal.add({"key": "c", "seconds": 3.0})
        with ProfilingJournal(path, header) as journal:
            assert "c" in journal.records
    with pytest.raises(RequestError, match="another request"):
        ProfilingJournal(path, {"device": "h200"})
    path.write_text("my thesis")
    with pytest.raises(RequestError, match="not a journal of a profile"):
        ProfilingJournal(path, header)
    assert path.read_text() == "my thesis"


def test_nccl_tests_alone_need_no_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, out = tmp_path / "all_reduce_perf.txt", tmp_path / "links.yaml"
    output.write_text(TEXT)
    words = f"profile {TRAINING} --only collectives --nccl-tests {output} --out {out}"
    assert main(words.split()) == 0
    assert "2 messages" in capsys.readouterr().out
    lines = read_profile(out).collectives
    assert {line.name for line in lines} == {"all_reduce node"}
    assert main(words.split()) == 2
    assert "--force" in capsys.readouterr().err


def test_bad_requests_end_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, reason in (
        (f"profile {TRAINING}", "--out"),
        (f"profile {TRAINING} --out {tmp_path / 'p.json'}", ".yaml"),
        (f"profile {TRAINING} --out {tmp_path / 'p.yaml'} --nccl-tests {tmp_path / 'none.txt'}", "none.txt"),
        (f"profile {TRAINING.replace('--gpus 16 ', '')} --out {tmp_path / 'p.yaml'}", "--strategy TEXT"),
        (f"search {TRAINING} --profile {tmp_path / 'none.yaml'}", "no such file"),
    ):
        assert main(words.split()) == 2, words
        out, err = capsys.readouterr()
        assert out == ""
        assert reason in err


CLUSTER = """\
device:
  name: small-cpu
  memory: 8GiB
  memory_rate: 10GB/s
  peak: {fp32: 100GFLOP/s, bf16: 100GFLOP/s}
  compute_units: 1
  matmul_ceiling: {fp32: 0.9}
  memory_efficiency: 0.8
  host_rate: 5GB/s
devices_per_node: 2
max_devices: 4
scale_up: none
network: {kind: ethernet, nics_per_node: 1, nic_rate: 1Gb/s}
"""
MODEL = """\
source: test
hidden: 64
vocab: 256
norm: layer
layers:
  - {count: 2, attention: {heads: 2}, mlp: {hidden: 128, gated: false}}
"""


def small(tmp_path: Path) -> str:
    (tmp_path / "cpu.yaml").write_text(CLUSTER)
    (tmp_path / "tiny.yaml").write_text(MODEL)
    return f"{tmp_path / 'tiny.yaml'} --cluster {tmp_path / 'cpu.yaml'} --global-batch 8 --seq-len 32 --precision fp32"


def test_a_plan_needs_no_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", *(name for name in sys.modules if name.startswith("torch."))):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    words = ["profile", *small(tmp_path).split(), "--strategy", "dp2 mbs2"]
    assert main([*words, "--plan"]) == 0
    assert "by the catalogue" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "p.yaml")]) == 2
    assert "profiling needs torch" in capsys.readouterr().err


def test_operators_are_measured_here_and_not_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    training, out = small(tmp_path), tmp_path / "p.yaml"
    words = ["profile", *training.split(), "--strategy", "dp2 mbs2", "--repeat", "3", "--device", "cpu"]
    assert main([*words, "--plan"]) == 0
    assert "distinct operators" in capsys.readouterr().out
    assert main([*words, "--out", str(out), "--seconds", "0.000001"]) == 0
    assert "time was up" in capsys.readouterr().out
    out.unlink()
    assert main([*words, "--out", str(out)]) == 0
    profile = read_profile(out)
    names = {line.name for line in profile.operators}
    assert {"gemm forward fp32", "stream layernorm fused backward", "attention flash forward fp32 causal"} <= names
    assert not profile.skipped
    assert not out.with_name("p.yaml.partial").exists()
    search = f"search {training} --gpus 2 --set mbs=2 --set pp=1 --set tp=1 --profile {out} --json"
    assert main(search.split()) == 0


@pytest.mark.slow  # two rounds of measurements
def test_a_profile_is_extended_by_what_it_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    training, out = small(tmp_path), tmp_path / "p.yaml"
    words = ["profile", *training.split(), "--repeat", "3", "--device", "cpu", "--extend"]
    assert main([*words, "--out", str(out), "--strategy", "dp2 mbs2"]) == 0
    first = {(line.name, line.shape): line.seconds for line in read_profile(out).operators}
    capsys.readouterr()
    assert main([*words, "--out", str(out), "--strategy", "dp2 mbs4", "--plan", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert main([*words, "--out", str(out), "--strategy", "dp2 mbs4"]) == 0
    both = {(line.name, line.shape): line.seconds for line in read_profile(out).operators}
    assert len(both) == len(first) + sum(planned["operators"].values()) > len(first)
    assert {key: both[key] for key in first} == first  # nothing is measured again
    assert main([*words, "--strategy", "dp2 mbs4", "--out", str(out), "--force"]) == 2


def test_extending_needs_the_same_device(tmp_path: Path) -> None:
    setting = resolve(REQUEST)
    path = tmp_path / "h100.yaml"
    path.write_text(yaml.safe_dump(profile_document(setting, 1.0)))
    known = profile_to_extend(path, "h100-sxm")
    assert not left_to_measure(operators_of(setting.context, [parse_strategy("tp2 dp8 mbs1 zero1 sp")]), known)
    assert left_to_measure(operators_of(setting.context, [parse_strategy("tp4 dp4 mbs1 zero1 sp")]), known)
    with pytest.raises(RequestError, match="of h100-sxm, not of a100"):
        profile_to_extend(path, "a100")


@pytest.mark.slow  # a launcher and two processes that load torch
def test_ranks_measure_their_collectives(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    training, out = small(tmp_path), tmp_path / "p.yaml"
    launcher = "-m torch.distributed.run --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0"
    verb = f"-m forerun.search profile {training} --only collectives --collective-bytes 1KiB..4KiB --repeat 2"
    words = [*launcher.split(), *verb.split(), "--strategy", "dp2 mbs2", "--device", "cpu", "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = read_profile(out).collectives
    assert {line.name.split()[0] for line in lines} == set(KIND_OF_TEST.values())
    assert {line.shape[0] for line in lines} == {1024.0, 4096.0}


def test_a_collective_without_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(
        "profile: 1\ndevice: a100-sxm4-80\nmade: {}\nskipped: {}\noperators: {}\n"
        'collectives: {" ": [[1000, 8, 1, 1e-4, 0.1, 1e-4]]}\n',
        encoding="utf-8",
    )
    with pytest.raises(RequestError, match="in a node or over the network"):
        read_profile(path)
