"""``forerun tune``: runs are launched once, followed, recorded and chosen from, whatever becomes of the driver."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import fake_trainer
import optuna
import pytest

import forerun
from forerun.search.cli import main
from forerun.search.tune.folder import JOURNAL
from forerun.search.tune.following import Patience
from forerun.search.tune.launchers.slurm import SlurmLauncher
from forerun.search.tune.run import RunState, TuningRun
from forerun.search.workers.ray_cluster import QUIET

SEARCH = "tune llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --set pp=1,2 --workers serial"
TORCHRUN = """\
import os, sys
words = sys.argv[1:]
while words[0].startswith("--"):
    words = words[2:]
os.execv(sys.executable, [sys.executable, *words])
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the fake trainer, and a torchrun that starts one process."""
    folder = tmp_path / "code"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(fake_trainer.__file__, folder / "train.py")
    (folder / "bin" / "torchrun").write_text(f"#!{sys.executable}\n{TORCHRUN}")
    (folder / "bin" / "torchrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    return folder


def behave(trainer: Path, **acts: object) -> None:
    (trainer / "behaviour.json").write_text(json.dumps({name.lstrip("_"): act for name, act in acts.items()}))


def starts(trainer: Path) -> list[dict[str, str]]:
    path = trainer / "starts.txt"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def command(trainer: Path, out: Path, *more: str) -> list[str]:
    program = f"{trainer / 'train.py'} tp={{tp}} pp={{pp}} mbs={{mbs}} steps={{steps}}"
    return [*SEARCH.split(), "--launcher", "local", "--trainer", program, "--yes", "--out", str(out), *more]


def result(out: Path) -> dict:  # type: ignore[type-arg]
    found: dict = json.loads((out / "result.json").read_text())  # type: ignore[type-arg]
    return found


def trials(out: Path) -> list[optuna.trial.FrozenTrial]:
    store = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / "study.log")))
    study = optuna.load_study(study_name="forerun tune", storage=store)
    assert study.metric_names == ["step_time_s"]
    return study.get_trials()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that looks often and does not wait long."""
    patience = Patience(start_s=20.0, silence_s=1.0, steps=0.01, end_s=1.0, poll_s=0.1)
    monkeypatch.setattr("forerun.search.tune.loop.USUAL", patience)


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_the_fastest_measured_run_wins_and_leaves_what_later_searches_need(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "night"
    assert main(command(trainer, out, "--runs", "3", "--measured", "4.4")) == 0
    printed = capsys.readouterr()
    document = result(out)

    assert [run["status"] for run in document["runs"]] == ["ok"] * 3 == ["ok"] * len(starts(trainer))
    times = {run["number"]: run["step_s"] for run in document["runs"]}
    assert document["leaderboard"] == sorted(times, key=lambda number: times[number])
    assert document["best"]["step_s"] == min(times.values())
    assert document["over_baseline"] == pytest.approx(4.4 / min(times.values()) - 1)
    for run, facts in zip(document["runs"], starts(trainer), strict=True):
        assert run["step_s"] == pytest.approx(2 * (1 + 0.1 * (int(facts["tp"]) - 1)) * (1 + 0.02 * int(facts["pp"])))
        assert facts["steps"] == "20"
    for trial, facts in zip(trials(out), starts(trainer), strict=True):
        assert (trial.state.name, trial.value) == ("COMPLETE", times[trial.user_attrs["run"]])
        assert trial.params["tp"] == int(facts["tp"])
        assert f"recompute={trial.params['recompute']}" in trial.user_attrs["strategy"] + " recompute=none"
        assert len(trial.intermediate_values) == 20
        ratio = trial.user_attrs["measured_tokens_per_s"] / trial.user_attrs["predicted_tokens_per_s"]
        assert ratio == pytest.approx(trial.user_attrs["predicted_step_time_s"] / trial.value)
    rows = list(csv.DictReader((out / "runs.csv").read_text().splitlines()))
    assert [float(row["step_time_s"]) for row in rows] == pytest.approx(list(times.values()))
    assert (out / "best" / "launch.sh").exists()
    page = (out / "report.html").read_text()
    assert all(f"Run {number:02}" in page for number in times) and "<script" not in page
    assert "GPU-hours" in printed.err and "ended after" in printed.err
    assert "launch it from" in " ".join(printed.out.split())
    again = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --workers serial"
    assert main([*again.split(), "--calibration", str(out / "calibration.yaml")]) == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_failures_are_told_apart_and_cost_no_more_than_their_time(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(trainer, _0="oom", _1="hang", _2="crash")
    out = tmp_path / "night"
    assert main(command(trainer, out, "--runs", "4")) == 0
    runs = result(out)["runs"]

    assert [run["status"] for run in runs] == ["oom", "hung", "failed", "ok"]
    assert "out of memory" in runs[0]["text"] and "NCCL" in runs[2]["text"]
    assert len({run["strategy"] for run in runs}) == 4
    assert result(out)["over_row_one"] == {"gain": None, "status": "oom"}
    rows = list(csv.DictReader((out / "runs.csv").read_text().splitlines()))
    assert [row["outcome"] for row in rows] == ["oom", "failed", "failed", "ok"]
    assert [trial.state.name for trial in trials(out)] == ["FAIL", "FAIL", "FAIL", "COMPLETE"]
    capsys.readouterr()


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_run_that_is_clearly_slower_is_ended_early(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(trainer, _1="slow")
    out = tmp_path / "night"
    assert main(command(trainer, out, "--runs", "2", "--steps", "100")) == 0
    first, second = result(out)["runs"]
    assert (first["status"], second["status"]) == ("ok", "stopped")
    assert second["steps"] < 50
    assert "longer than in the best run" in second["text"]
    assert [trial.state.name for trial in trials(out)] == ["COMPLETE", "PRUNED"]
    capsys.readouterr()


SBATCH = """\
import os, subprocess, sys
from pathlib import Path
queue = Path(os.environ["QUEUE"])
name = next(word.partition("=")[2] for word in sys.argv if word.startswith("--job-name="))
assert any(word.startswith("--time=") for word in sys.argv), sys.argv
null = subprocess.DEVNULL
given = {**os.environ, "SLURM_JOB_NODELIST": "node0"}
number = str(len(list(queue.iterdir())) + 1)
child = subprocess.Popen(["bash", sys.argv[-1]], start_new_session=True, stdout=null, stderr=null, env=given)
(queue / number).write_text(f"{name} {child.pid}")
print(number)
"""
SQUEUE = """\
import os, sys
from pathlib import Path
for job in sorted(Path(os.environ["QUEUE"]).iterdir()):
    name, pid = job.read_text().split()
    alive = Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    if alive and (f"--name={name}" in sys.argv or f"--jobs={job.name}" in sys.argv):
        print(job.name if f"--name={name}" in sys.argv else "RUNNING")
"""
SCANCEL = """\
import os, signal, sys
from pathlib import Path
os.killpg(int((Path(os.environ["QUEUE"]) / sys.argv[1]).read_text().split()[1]), signal.SIGKILL)
"""
SCONTROL = "print('node0')"
SRUN = """\
import os, sys
words = [word for word in sys.argv[1:] if not word.startswith("--")]
os.execvp(words[0], words)
"""


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_jobs_of_slurm_are_submitted_once_watched_and_cancelled(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue").mkdir()
    monkeypatch.setenv("QUEUE", str(tmp_path / "queue"))
    stubs = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL, "scontrol": SCONTROL, "srun": SRUN, "sinfo": ""}
    for name, text in stubs.items():
        (trainer / "bin" / name).write_text(f"#!{sys.executable}\n{text}")
        (trainer / "bin" / name).chmod(0o755)
    behave(trainer, _0="hang")
    out = tmp_path / "night"
    words = command(trainer, out, "--runs", "2", "--partition", "gpu")
    words[words.index("local")] = "slurm"
    assert main(words) == 0
    assert [run["status"] for run in result(out)["runs"]] == ["hung", "ok"]
    assert "#SBATCH --partition=gpu" in (out / "runs" / "01" / "run.sbatch").read_text()
    assert len(list((tmp_path / "queue").iterdir())) == len(starts(trainer)) == 2
    capsys.readouterr()


@pytest.mark.parametrize(("queued", "slots"), [("forerun-1-01", 1), ("someone-else", 5), ("", 5)])
def test_no_job_of_slurm_is_added_while_another_waits(
    queued: str, slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("squeue", queued), ("sinfo", "4")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = TuningRun.from_record(dict.fromkeys(TuningRun.__dataclass_fields__, 1))
    assert SlurmLauncher().slots(RunState(run=run, folder=tmp_path), active=1) == slots


CLUSTER = """\
name: two-nodes
device: h100-sxm
devices_per_node: 4
scale_up: {kind: nvswitch}
network: {kind: infiniband, nics_per_node: 4, nic_rate: 400Gb/s}
"""


@pytest.mark.ray
@pytest.mark.slow  # two Ray nodes are started
def test_actors_on_two_nodes_of_ray_run_once_and_give_their_gpus_back(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray
    from ray.cluster_utils import Cluster

    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    behave(trainer, _0="late", _1="late", _2="hang", _3="hang")
    out = tmp_path / "night"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 4, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1, num_gpus=4)
        cluster.wait_for_nodes()
        words = command(trainer, out, "--runs", "1")
        words[words.index("dgx-h100")] = str(tmp_path / "cluster.yaml")
        words[words.index("local") : words.index("local") + 1] = ["ray", cluster.address]
        process = driver(words)
        wait_for(lambda: (out / JOURNAL).exists() and '"launched"' in (out / JOURNAL).read_text(), within_s=120)
        wait_for(lambda: len(starts(trainer)) == 2, within_s=120)
        process.kill()
        process.wait()
        assert main([*words, "--resume"]) == 0
        assert [run["status"] for run in result(out)["runs"]] == ["ok"]
        assert len(starts(trainer)) == 2
        assert "iteration" in (out / "runs" / "01" / "node-1.log").read_text()

        patience = Patience(start_s=60.0, silence_s=1.0, steps=0.01, end_s=1.0, poll_s=0.1)
        monkeypatch.setattr("forerun.search.tune.loop.USUAL", patience)
        words[words.index("--runs") + 1] = "2"
        assert main([*words, "--resume"]) == 0
        assert [run["status"] for run in result(out)["runs"]] == ["ok", "hung"]
        assert len(starts(trainer)) == 4

        ray.init(address=cluster.address, namespace="forerun")
        wait_for(lambda: ray.available_resources().get("GPU") == 8)
        assert {group["state"] for group in ray.util.placement_group_table().values()} == {"REMOVED"}
        ray.shutdown()
    finally:
        cluster.shutdown()
    capsys.readouterr()


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_script_tunes_as_the_command_does(trainer: Path, tmp_path: Path) -> None:
    plans = list[str]()

    def approve(plan: str) -> bool:
        plans.append(plan)
        return len(plans) < 3

    job: forerun.TuningJob = {"cluster": "dgx-h100", "gpus": 8, "global_batch": 64, "seq_len": 4096, "runs": 4}
    job["trainer"] = f"{trainer / 'train.py'} tp={{tp}} pp={{pp}} mbs={{mbs}} steps={{steps}}"
    summary = forerun.tune("llama3-8b", launcher="local", out=tmp_path / "night", approve=approve, **job)
    assert [state.result.status for state in summary.states if state.result] == ["ok", "ok"]
    assert summary.best is not None and summary.best.run.strategy in plans[summary.best.run.number - 1]
    assert summary.document["best"] == result(tmp_path / "night")["best"]
    assert len(starts(trainer)) == 2


@pytest.mark.usefixtures("quick")
def test_nothing_is_launched_without_consent(trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in command(trainer, tmp_path / "night") if word != "--yes"]
    assert main(words) == 2
    assert "--yes" in capsys.readouterr().err
    assert starts(trainer) == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_budget_that_is_too_small_launches_nothing(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(trainer, tmp_path / "night", "--gpu-hours", "0.001")) == 1
    assert "too few GPU-hours" in capsys.readouterr().out
    assert starts(trainer) == []


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_tuning_that_is_over_is_not_run_again(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "night"
    assert main(command(trainer, out, "--runs", "1")) == 0
    assert main(command(trainer, out, "--runs", "1")) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(command(trainer, out, "--runs", "1", "--resume")) == 0
    assert len(starts(trainer)) == 1
    assert main(command(trainer, out, "--runs", "2", "--steps", "10", "--resume")) == 2
    assert "steps" in capsys.readouterr().err
    assert main(command(trainer, out, "--runs", "2", "--resume")) == 0
    assert len(starts(trainer)) == 2


def driver(words: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "forerun.search", *words], stderr=subprocess.DEVNULL)


def wait_for(condition: object, within_s: float = 30.0) -> None:
    ends_at = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends_at, "it does not happen"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("event", ["chosen", "launched"])
def test_a_driver_that_is_killed_launches_nothing_twice(
    event: str, trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(trainer, _0="late")
    out = tmp_path / "night"
    words = command(trainer, out, "--runs", "2")
    process = driver(words)
    wait_for(lambda: (out / JOURNAL).exists() and f'"{event}"' in (out / JOURNAL).read_text())
    process.kill()
    process.wait()
    assert main([*words, "--resume"]) == 0

    runs = result(out)["runs"]
    assert [run["status"] for run in runs] == ["ok", "ok"]
    assert len(starts(trainer)) == 2
    assert len(list(csv.DictReader((out / "runs.csv").read_text().splitlines()))) == 2
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "number", "code"), [("cancel", signal.SIGINT, 130), ("leave", signal.SIGTERM, 143)])
def test_an_interrupted_driver_ends_its_runs_or_leaves_them(
    asked: str, number: int, code: int, trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behave(trainer, _0="late")
    out = tmp_path / "night"
    words = command(trainer, out, "--runs", "1", "--on-interrupt", asked)
    process = driver(words)
    wait_for(lambda: starts(trainer))
    process.send_signal(number)
    assert process.wait(60) == code
    pid = int((out / "runs" / "01" / "started" / "process").read_text().split()[0])
    assert Path(f"/proc/{pid}").exists() == (asked == "leave")

    assert main([*words, "--resume"]) == 0
    statuses = [run["status"] for run in result(out)["runs"]]
    assert statuses == (["ok"] if asked == "leave" else ["interrupted", "ok"])
    assert len(starts(trainer)) == len(statuses)
    capsys.readouterr()


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_logs_that_are_dropped_into_folders_are_read(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.search.tune.launchers.dry import DryLauncher
    from forerun.search.tune.run import RunState

    begin = DryLauncher.start

    def dropped(self: DryLauncher, state: RunState) -> str:
        assert "--tensor-model-parallel-size" in (state.folder / "launch.sh").read_text()
        assert "--train-iters 20" in (state.folder / "launch.sh").read_text()
        lines = [f" iteration {step}/20 | elapsed time per iteration (ms): 2500.0 |" for step in range(1, 21)]
        state.log.write_text("\n".join(lines))
        (state.folder / "exit_code").write_text("0")
        return begin(self, state)

    monkeypatch.setattr(DryLauncher, "start", dropped)
    out = tmp_path / "night"
    assert main([*SEARCH.split(), "--launcher", "dry", "--yes", "--runs", "1", "--out", str(out)]) == 0
    assert result(out)["best"]["step_s"] == 2.5
    assert "put the log" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
@pytest.mark.slow
def test_a_command_of_the_user_starts_runs_without_its_secrets_in_files(
    trainer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "hunter2-and-more")
    out = tmp_path / "night"
    words = command(trainer, out, "--runs", "1")
    place = words.index("local")
    words[place : place + 1] = ["command", "test hunter2-and-more = $SITE_TOKEN && bash {folder}/launch.sh"]
    words[words.index("--trainer") + 1] += " token=hunter2-and-more"
    assert main(words) == 0
    assert result(out)["runs"][0]["status"] == "ok"
    assert starts(trainer)[0]["token"] == "hunter2-and-more"
    texts = {path: path.read_text(errors="replace") for path in out.rglob("*") if path.is_file()}
    assert [path for path, text in texts.items() if "hunter2" in text] == []
    assert "hunter2" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("--launcher slrum", "unknown launcher"),
        ("--launcher local twice", "no further words"),
        ("--launcher ray 127.0.0.1:1", "no Ray cluster answers"),
        ("--launcher command", "needs a command"),
        ("--launcher command {nope}", "unknown field"),
        ("--launcher dry --until yesterday", "--until is written like"),
        ("--launcher dry --trainer nothing.py", "is not a file"),
        ("--launcher dry --set tp=3", "tp"),
        ("--launcher local --log-pattern (", "is not a regular expression"),
        ("--launcher local --log-pattern took", "needs a group"),
    ],
)
def test_bad_requests_end_before_anything_is_written(
    more: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SEARCH.split(), *more.split(), "--yes", "--out", str(tmp_path / "night")]) in (2, 3)
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "night").exists()


def test_a_long_log_is_read_from_time_to_time_and_at_its_end(tmp_path: Path) -> None:
    from types import SimpleNamespace as Plain

    from forerun.search.formats.logs import read_log
    from forerun.search.tune.following import Follower
    from forerun.search.tune.launchers.contract import RunPhase, Status

    reads, phases = list[int](), [RunPhase.RUNNING] * 3 + [RunPhase.ENDED]
    state = Plain(
        folder=tmp_path, log=tmp_path / "log", verdict=None, run=Plain(steps=20, expected_s=1.0, limit_s=600.0)
    )

    def read(path: Path) -> object:
        reads.append(1)
        time.sleep(0.2)
        return read_log(path)

    follower = Follower(
        state=state,  # type: ignore[arg-type]
        launcher=Plain(status=lambda _: Status(phase=phases.pop(0))),  # type: ignore[arg-type]
        read=read,  # type: ignore[arg-type]
        patience=Patience(),
        first_step_s=60.0,
        before_ending=lambda *_: None,
        on_steps=lambda *_: "",
    )
    for step in range(1, 5):
        with state.log.open("a") as file:
            file.write(f" iteration {step}/20 | elapsed time per iteration (ms): 1000.0 |\n")
        result = follower.look()
    assert len(reads) == 2
    assert result is not None and result.steps == 4


@pytest.mark.parametrize("steps", [20, 19])
def test_a_log_with_all_steps_is_a_measurement_even_if_the_user_interrupts(steps: int, tmp_path: Path) -> None:
    from forerun.search.formats.logs import read_log
    from forerun.search.tune.following import Follower
    from forerun.search.tune.launchers.dry import DryLauncher
    from forerun.search.tune.run import RunStatus

    facts = dict.fromkeys(TuningRun.__dataclass_fields__, 1) | {"steps": 20, "expected_s": 1.0, "limit_s": 600.0}
    state = RunState(run=TuningRun.from_record(facts), folder=tmp_path)

    def end(ended: RunState, status: RunStatus, text: str) -> None:
        ended.verdict = (status, text)

    lines = [f" iteration {step}/20 | elapsed time per iteration (ms): 1000.0 |" for step in range(1, steps + 1)]
    state.log.write_text("\n".join(lines))
    follower = Follower(
        state=state,
        launcher=DryLauncher(),
        read=read_log,
        patience=Patience(),
        first_step_s=60.0,
        before_ending=end,
        on_steps=lambda *_: "",
    )
    assert follower.look() is None
    result = follower.end("interrupted", "ended by the user")
    assert result.status == ("ok" if steps == 20 else "interrupted")
    assert result.measured == (steps == 20)
    assert result.start_s is None  # nobody has seen the start of a run whose log was put there
    assert result.seconds == pytest.approx(steps)
