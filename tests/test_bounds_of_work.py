"""Bounds of work: what is just below one is done in seconds, what is above is refused before it is begun."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forerun_cli import cli

from forerun.search.cli import main
from forerun.search.formats import python_text
from forerun.search.formats.importing import import_texts
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.shell.reader import MOST_STATEMENTS, MOST_WORDS
from forerun.search.formats.shell.script import read_script
from forerun.search.formats.shell.tree import MOST_BYTES
from forerun.search.measured.profiling import nccl_tests
from forerun.search.sweep.plan import MOST_PIECES, read_plan
from forerun.simulator.events.step import strategy_step
from forerun.simulator.replay.readers import texts
from forerun.spaces.documents import document
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import without_secrets
from forerun.spaces.opgraph import net_file

STEP = "simulate llama3-8b --cluster dgx-h100 --fidelity events --seq-len 1024 --json".split()


@pytest.mark.parametrize(
    "flags,strategy,words",
    [
        (["--global-batch", "100000"], "pp4 dp2 mbs1", "at most 100,000 passes, but this one has 400,000;"),
        (
            ["--every-replica", "--contention", "--global-batch", "8000"],
            "pp4 dp2000 mbs1",
            "20,000 passes whose traffic shares links, but this one has 64,000 (2,000 pipelines)",
        ),
        (["--every-replica", "--global-batch", "80000"], "pp4 dp2000 mbs1", "(2,000 pipelines)"),
    ],
)
def test_steps_beyond_the_bound_are_refused_at_once(
    flags: list[str], strategy: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STEP, *flags, "--strategy", strategy]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow  # ten seconds
@pytest.mark.parametrize(
    "flags,strategy",
    [
        (["--global-batch", "24990"], "pp4 dp2 mbs1"),
        (["--every-replica", "--contention", "--global-batch", "2496"], "pp4 dp312 mbs1"),
    ],
)
def test_steps_just_below_the_bound_are_simulated(
    flags: list[str], strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*STEP, *flags, "--strategy", strategy]) == 0


def test_names_of_a_trace_are_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(texts, "MOST_TEXTS", 50)
    for count, code in ((50, 0), (51, 2)):
        events = [
            {"ph": "X", "name": f"FW.op{n}", "pid": "host0.rank0", "ts": 20 * n, "dur": 10, "args": {"step": 0}}
            for n in range(count)
        ]
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps({"traceEvents": events}))
        found, _, err = cli(capsys, f"replay {path}")
        assert (found == 2 and "different names" in err) is (code == 2), err


def spent_s(work: Callable[[], object]) -> float:
    """Return the seconds of CPU that something takes."""
    begin_s = time.process_time()
    work()
    return time.process_time() - begin_s


@pytest.mark.slow  # seconds
@pytest.mark.parametrize(
    "line,most",
    [
        ("torchrun a.py --nnodes 1\n", MOST_STATEMENTS),
        ("X=$((X + 1))\n", MOST_STATEMENTS),
        ("torchrun " + "f " * (MOST_WORDS // 4 - 1) + "\n", 4),
        ("torchrun " + "[" * 65_000 + "\n", 1),
    ],
)
def test_what_a_script_runs_is_bounded(line: str, most: int) -> None:
    assert spent_s(lambda: read_script(line * most, "run.sh")) < 4
    with pytest.raises(RequestError, match=r"run\.sh (?:runs|has) .*more than [\d,]+ (?:statements|words)"):
        read_script(line * (most + 1), "run.sh")


@pytest.mark.parametrize("size,limit", [(MOST_BYTES, None), (MOST_BYTES + 1, f"{MOST_BYTES:,} bytes")])
def test_the_size_of_a_script_is_bounded(size: int, limit: str | None) -> None:
    script = "torchrun a.py --nnodes 2 #".ljust(size, "x")
    if limit is None:
        assert read_script(script, "run.sh").commands == (("torchrun", "a.py", "--nnodes", "2"),)
    else:
        with pytest.raises(RequestError, match=limit):
            read_script(script, "run.sh")


@pytest.mark.parametrize(
    "script",
    [
        "torchrun a.py " + "]`<" * 40_000,  # a substitution in each redirection
        pytest.param("torchrun a.py " + "a=(" * 40_000, marks=pytest.mark.slow),
        pytest.param("for i in 1 2 3 4 5 6 7 8 9; do bash -c '" + "a=(" * 9_000 + "'; done", marks=pytest.mark.slow),
    ],
)
def test_text_that_is_no_shell_is_given_up_in_time(script: str) -> None:
    def read() -> None:
        with pytest.raises(RequestError, match=r"more than [\d,]+ backticks|takes too long to parse"):
            read_script(script, "run.sh")

    assert spent_s(read) < 4


@pytest.mark.parametrize("name", ["run.sh", "run.yaml", "run.json", "run.toml", "run.py"])
@pytest.mark.parametrize("filling", ["\n", " ", "a ", "--a ", "a.", "\t"])
def test_a_file_of_one_text_again_and_again_is_recognised_in_time(name: str, filling: str) -> None:
    def read() -> None:
        with pytest.raises(RequestError):
            import_texts({name: filling * (300_000 // len(filling))})

    assert spent_s(read) < 4


def test_a_name_without_end_is_compared_with_none() -> None:
    assert spent_s(lambda: unknown("device", "h100-sxm" * 20_000, ["h100-sxm", "a100"])) < 1
    assert len(str(unknown("device", "h100-sxm" * 20_000, ["h100-sxm"]))) < 400


def test_a_message_without_end_is_searched_for_secrets_in_time() -> None:
    long = "--global" * 40_000
    masked: list[str] = []
    assert spent_s(lambda: masked.append(without_secrets(f"{long}://user:secret@host/path"))) < 2
    assert "secret" not in masked[0] and masked[0].startswith("--global--global")


@pytest.mark.slow  # seconds
def test_many_settings_that_nobody_reads_are_looked_at_in_time() -> None:
    names = {f"{section}.micro_batch_siz{n}": 1 for section in ("a", "b") for n in range(20_000)}
    settings = LaunchSettings({"a.micro_batch_size": 1, **names}, "it.yaml")
    for n in range(200):
        settings.raw(f"a.micro_batch_size{n or ''}")

    def rest() -> None:
        _, unread = settings.rest(lambda name: True)
        assert "a.micro_batch_siz0" in unread and "b.micro_batch_siz0" not in unread

    assert spent_s(rest) < 4


def net(layers: int) -> str:
    lines = (f"CONV{n}, ({64 + n},8,8), ({64 + n},{65 + n},3,3), ({65 + n},8,8), 0.0001" for n in range(layers))
    return "\n".join(("ImageNet 1280000", "1x3x226x226", "net", *lines, ""))


def nccl(readings: int) -> str:
    ranks = "".join(f"#  Rank  {rank} Group  0 Pid  1 on  host0 device  {rank} [0x1b] H100\n" for rank in range(8))
    rows = (f"  {8 + n}  {2 + n}  float  sum  -1  20.1 1.0 1.5 0 19.7 1.0 1.5 0\n" for n in range(readings))
    return "# Collective test starting: all_reduce_perf\n" + ranks + "".join(rows)


def plan(searches: int) -> str:
    batches = "\n".join(f"- {{global_batch: {n}, seq_len: 512}}" for n in range(1, searches // 8 + 1))
    gpus = ", ".join(f"{{gpus: {8 * n}}}" for n in range(1, 9))
    return f"models: [llama3-8b]\nclusters: [dgx-h100]\nworkloads:\n{batches}\nbudgets: [{gpus}]\n"


PROFILE = (
    "profile llama3-8b --cluster dgx-h100 --global-batch 8 --seq-len 512 --only collectives"
    " --out {folder}/p.yaml --force"
)
READERS: dict[str, tuple[str, str, Callable[[int], str], int]] = {
    # bound: file, command, content of a size, the largest size
    "layers of a .net file": (
        "n.net",
        "simulate {file} --cluster dgx-a100-80 --global-batch 64 --strategy data8",
        net,
        net_file.MOST_LAYERS,
    ),
    "measurements of nccl-tests": ("n.txt", PROFILE + " --nccl-tests {file}", nccl, nccl_tests.MOST_READINGS),
    "bytes of a configuration in Python": (
        "c.py",
        "import {file}",
        lambda size: ("a = [1, 2, 3]\n" * (size // 14 + 1))[:size],
        python_text.MOST_BYTES,
    ),
    "groups of nodes": (
        "g.yaml",
        "show {file}",
        lambda size: "groups:\n" + "- {cluster: dgx-h100, devices: 8}\n" * size,
        64,
    ),
    "values of a document": (
        "v.yaml",
        "show {file}",
        lambda size: "".join(f"k{n}: 1\n" for n in range((size - 1) // 2)) + "k: 1\n" * (size % 2 == 0),
        document.MAX_VALUES,
    ),
    "devices of a matrix of links": (
        "t.txt",
        "show {file}",
        lambda size: "\n".join(
            "\t".join(cells)
            for cells in (["", *(f"GPU{n}" for n in range(size))], *([f"GPU{n}", *["X"] * size] for n in range(size)))
        ),
        256,
    ),
}
"""What people write: each just below its bound is read in two seconds and 500 MB, above it refused in a sentence."""


METER = """
import os, subprocess, sys

process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
"""
"""Start a command and print exit code, seconds of CPU and MiB. A child of pytest would have its peak of memory."""


def cost(command: str, folder: Path) -> tuple[int, str, float, int]:
    """Run a command in a process of its own; return exit code, last line, seconds of CPU and MiB at its peak."""
    words = [sys.executable, "-c", METER, sys.executable, "-m", "forerun.search", *command.split()]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder)
    code, cpu_s, mebibytes = ended.stdout.split()
    lines = [line for line in ended.stderr.splitlines() if line]
    return int(code), (lines or [""])[-1], float(cpu_s), int(mebibytes)


@pytest.mark.slow  # a process and a second each
@pytest.mark.parametrize("bound", READERS)
def test_documents_just_below_their_bounds_are_read_in_time(bound: str, tmp_path: Path) -> None:
    name, command, content, most = READERS[bound]
    words = command.replace("{file}", str(tmp_path / name)).replace("{folder}", str(tmp_path))
    for size in (most, most + 1):
        (tmp_path / name).write_text(content(size))
        assert (tmp_path / name).stat().st_size < 2_000_000
        code, last, cpu_s, mebibytes = cost(words, tmp_path)
        assert code in (0, 2) and "internal error" not in last
        assert cpu_s < 6, "two seconds are asked, on a machine that does nothing else"
        assert mebibytes < 600
    assert code == 2 and re.search(r"at most|too long", last), last


def test_a_plan_of_too_many_searches_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(plan(MOST_PIECES + 8))

    def read() -> None:
        with pytest.raises(RequestError, match="at most 200,000 searches, but this one has 200,008"):
            read_plan(path)

    assert spent_s(read) < 4


@pytest.mark.slow  # a search of seconds
def test_splits_of_many_operators_are_costed_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / "n.net").write_text(net(4_000))
    request = "--cluster dgx-a100-80 --gpus 8..16 --global-batch 64 --workers serial"
    code, last, _, mebibytes = cost(f"search {tmp_path / 'n.net'} {request}", tmp_path)
    assert code == 3 and "nothing fits" in last
    assert mebibytes < 600


def test_the_bound_counts_all_pipelines() -> None:
    class Shape:
        pp, vpp, microbatches = 4, 1, 100

    class Costs:
        shape = Shape()

    strategy_step.check_passes(Costs(), 125, shared=False)  # type: ignore[arg-type]  # its shape alone is looked at
    with pytest.raises(RequestError, match="100,800"):
        strategy_step.check_passes(Costs(), 126, shared=False)  # type: ignore[arg-type]  # likewise
