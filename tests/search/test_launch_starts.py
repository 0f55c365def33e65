"""The folder of every format starts from another directory: ranks, nodes, working directory, files, environment.

Real bash runs what was exported; Slurm and the launchers are stand-ins that record (``launch_stubs``).
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from export_cases import CASES
from forerun_examples import dense_model
from launch_stubs import HOSTS, Machine, Started

from forerun.search.formats import Format, Launch, writable
from forerun.search.formats.job import Job
from forerun.search.formats.launchers import LAUNCH, SLURM, rack_nodes
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

STARTED = [item for item in writable() if item.name != "forerun"]
EACH = pytest.mark.parametrize("item", STARTED, ids=lambda item: item.name)


def test_every_format_that_starts_a_run_has_a_case() -> None:
    assert {item.name for item in STARTED} == {*CASES}


def exported(item: Format, folder: Path, *, devices: int = 16, job: Job | None = None) -> Mapping[str, str]:
    """Write a launch into a folder, with a program beside it, and return its files."""
    strategy = parse_strategy(CASES[item.name].strategy)
    if devices < 16:
        strategy = replace(strategy, dp=strategy.dp * devices // 16)
    job = job or Job()
    launch = Launch(
        strategy=strategy,
        model=replace(dense_model(), max_seq_len=4096),
        workload=Workload(global_batch=64, seq_len=4096),
        devices_per_node=8,
        job=replace(job, folder=str(folder)),
    )
    files = item.express(launch)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    for program in ("pretrain_gpt.py", "run_train.py", "train.py", "deepy.py", "scripts/training/run_recipe.py"):
        (folder / program).parent.mkdir(exist_ok=True, parents=True)
        (folder / program).touch()
    return files


def world(one: Started, folder: Path) -> tuple[int, int, int]:
    """Return nodes, ranks of a node and the number of this node, as a launcher was told."""
    match one.launcher:
        case "torchrun":
            return (int(one.option("--nnodes")), int(one.option("--nproc_per_node")), int(one.option("--node_rank")))
        case "deepspeed":
            several = "--node_rank" in one.words
            rank = int(one.option("--node_rank")) if several else 0
            if several:
                assert "--no_ssh" in one.words
                assert [line.split(" ")[1] for line in one.hosts] == ["slots=8"] * len(one.hosts)
            nodes = len(one.hosts) if several else 1
            assert nodes == int(one.option("--num_nodes"))
            return nodes, int(one.option("--num_gpus")), rank
        case "accelerate":
            data = yaml.safe_load((one.cwd / one.option("--config_file")).read_text())
            nodes = int(one.option("--num_machines"))
            return nodes, data["num_processes"] // nodes, int(one.option("--machine_rank"))
        case "llamafactory-cli":
            assert one.environment["FORCE_TORCHRUN"] == "1"
            names = ("NNODES", "NPROC_PER_NODE", "NODE_RANK")
            nodes, ranks, rank = (int(one.environment[name]) for name in names)
            return nodes, ranks, rank
        case "python":  # GPT-NeoX: one start for all nodes
            data = yaml.safe_load((one.cwd / one.words[-1]).read_text())
            if data["num_nodes"] > 1:
                assert (data["launcher"], data["deepspeed_slurm"]) == ("slurm", True)
                assert one.hosts == tuple(f"{host} slots=8" for host in HOSTS[: data["num_nodes"]])
            return data["num_nodes"], data["num_gpus"], 0
        case "python3":  # MaxText: one process drives all devices of a node
            data = yaml.safe_load((one.cwd / one.words[-1]).read_text())
            degrees = [value for name, value in data.items() if name.startswith("ici_")]
            devices = 1
            for degree in degrees:
                devices *= degree
            nodes = int(one.environment.get("SLURM_NNODES", 1))
            return nodes, devices // nodes, int(one.environment.get("SLURM_NODEID", 0))
    raise AssertionError(one.launcher)


def check_files(one: Started, files: Mapping[str, str], folder: Path) -> None:
    """Assert that a launcher finds its program and every file that was written, from where it runs."""
    assert one.cwd == folder
    named = {Path(word).name: one.cwd / word for word in one.words}
    named |= {Path(word).name: one.cwd / word for word in one.words if "/" in word}
    for name in files.keys() - {LAUNCH, SLURM}:
        importable = name.endswith(".py") and str(folder) in one.environment.get("PYTHONPATH", "").split(":")
        inside = any(name in text for other, text in files.items() if other not in (name, LAUNCH, SLURM))
        assert (
            importable or inside or named.get(name, folder / "none").is_file() or "scripts that take" in files[LAUNCH]
        )
    for name, path in named.items():
        if name.endswith((".py", ".yaml", ".yml", ".json", ".toml")) and "=" not in name:
            assert path.is_file()


def machine(tmp_path: Path) -> Machine:
    return Machine(
        tmp_path / "machine", {"RECIPE": "some_recipe", "NODE_RANK": "5", "CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    )


@EACH
def test_a_batch_script_starts_from_another_directory(item: Format, tmp_path: Path) -> None:
    case, folder, host = CASES[item.name], tmp_path / "a launch", machine(tmp_path)
    files = exported(item, folder)

    done = host.sbatch(folder / SLURM)

    assert (done.returncode, done.stderr) == (0, "")
    calls = host.started()
    assert [world(one, folder) for one in calls] == [(2, 8, node) for node in range(1 if case.once else 2)]
    for one in calls:
        assert one.launcher == case.launcher
        assert any(Path(word).name == case.program for word in one.words)
        assert (one.environment["MASTER_ADDR"], one.environment["MASTER_PORT"]) == (HOSTS[0], "29500")
        check_files(one, files, folder)
    if "tp2" in case.strategy and item.name == "megatron-lm":
        assert {one.environment["CUDA_DEVICE_MAX_CONNECTIONS"] for one in calls} == {"1"}
    assert not [*(host.folder / "elsewhere").iterdir()]


@EACH
def test_a_script_starts_one_node_from_another_directory(item: Format, tmp_path: Path) -> None:
    folder, host = tmp_path / "launch", machine(tmp_path)
    files = exported(item, folder, devices=8)

    done = host.run(folder / LAUNCH, NODE_RANK="0")

    assert (done.returncode, done.stderr) == (0, "")
    (one,) = host.started()
    assert world(one, folder) == (1, 8, 0)
    check_files(one, files, folder)
    assert not [*(host.folder / "elsewhere").iterdir()]


@pytest.mark.parametrize("node", ["0", "1"])
def test_a_script_is_started_by_hand_on_each_of_several_nodes(node: str, tmp_path: Path) -> None:
    host, item = machine(tmp_path), STARTED[-2]
    exported(item, tmp_path / "launch")

    assert item.name == "deepspeed"
    assert host.run(tmp_path / "launch" / LAUNCH, NODE_RANK=node, MASTER_ADDR="first").returncode == 0
    (one,) = host.started()
    assert (world(one, tmp_path), one.option("--master_addr")) == ((2, 8, int(node)), "first")


def test_a_folder_that_was_moved_or_copied_starts_its_own_files(tmp_path: Path) -> None:
    item, host = STARTED[-1], machine(tmp_path)
    exported(item, tmp_path / "exported")
    copied = Path(shutil.copytree(tmp_path / "exported", tmp_path / "copied"))

    assert host.sbatch(copied / SLURM).returncode == 0
    assert {one.cwd for one in host.started()} == {copied}


@pytest.mark.parametrize(
    ("variables", "folder"), [({"FOLDER": "copied"}, "copied"), ({"SUBMITTED": ""}, "exported"), ({}, "copied")]
)
def test_the_folder_is_the_one_named_else_submitted_else_exported(
    variables: Mapping[str, str], folder: str, tmp_path: Path
) -> None:
    item, host = STARTED[-1], machine(tmp_path)
    exported(item, tmp_path / "exported")
    shutil.copytree(tmp_path / "exported", tmp_path / "copied")
    script = tmp_path / ("exported" if "FOLDER" in variables else "copied") / SLURM
    given = {name: str(tmp_path / value) if value else "" for name, value in variables.items()}

    assert host.sbatch(script, **given).returncode == 0
    assert {one.cwd for one in host.started()} == {tmp_path / folder}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    item, host = STARTED[-1], machine(tmp_path)
    exported(item, tmp_path / "exported")
    script = tmp_path / "slurm.sbatch"
    shutil.move(tmp_path / "exported" / SLURM, script)
    shutil.rmtree(tmp_path / "exported")

    done = host.sbatch(script)

    assert done.returncode == 2
    assert (
        done.stderr == f"launch.sh is not in {tmp_path}/exported: set FOLDER to the folder that it is in, then sbatch\n"
    )


def test_the_first_of_many_nodes_is_the_master(tmp_path: Path) -> None:
    """A reader that closes early ends what writes to it, and so the script: 64 KiB fit into a pipe."""
    item, host = STARTED[-1], machine(tmp_path)
    exported(item, tmp_path / "launch")
    names = ",".join(f"a-rather-long-name-of-a-host-{number:06}" for number in range(2500))

    assert host.sbatch(tmp_path / "launch" / SLURM, SLURM_JOB_NODELIST=names, SLURM_NNODES="1").returncode == 0
    assert host.started()[0].environment["MASTER_ADDR"] == "a-rather-long-name-of-a-host-000000"


def test_options_of_the_queue_are_written(tmp_path: Path) -> None:
    item, host = STARTED[-1], machine(tmp_path)
    job = Job(partition="gpu,large", account="a-1", time="1-12:00", container="nvcr.io#nvidia/nemo:25.09")
    files = exported(item, tmp_path / "launch", job=job)

    assert host.sbatch(tmp_path / "launch" / SLURM, CONTAINER_MOUNTS="/data").returncode == 0
    lines = files[SLURM].splitlines()
    assert {"#SBATCH --partition=gpu,large", "#SBATCH --account=a-1", "#SBATCH --time=1-12:00"} <= {*lines}
    folder = str(tmp_path / "launch")
    assert {
        "--container-image=nvcr.io#nvidia/nemo:25.09",
        f"--container-mounts={folder}:{folder},/data",
        f"--container-workdir={folder}",
    } <= {*host.srun()}


@pytest.mark.parametrize(
    "option", [{"partition": "a b"}, {"account": "x\n#SBATCH"}, {"time": "soon"}, {"container": "$(x)"}]
)
def test_options_of_the_queue_that_are_none_are_refused(option: Mapping[str, str]) -> None:
    with pytest.raises(RequestError, match=f"--{next(iter(option))} is written like"):
        Job(**option)


@pytest.mark.parametrize(
    ("strategy", "nodes"),
    [
        ("tp1 pp1 dp512 ep64 mbs1", 16),  # 64 of each rack of 72
        ("tp1 pp1 dp576 ep64 mbs1", 18),  # 8 whole racks, which cut groups of 64
        ("tp4 pp1 dp144 mbs1", 18),
        ("tp4 pp1 dp16 mbs1", 16),  # one rack
        ("tp1 pp1 dp144 cp8 mbs1", 18),
        ("tp1 pp1 dp512 ep8 mbs1", 16),  # 8 racks in any case
        ("tp1 pp1 dp544 ep8 mbs1", 2),  # 8 racks, where segments of 8 nodes need 9
        ("tp1 pp1 dp76 mbs1", 0),  # 19 nodes
    ],
)
def test_nodes_of_a_rack_hold_whole_groups(strategy: str, nodes: int) -> None:
    launch = Launch(
        strategy=parse_strategy(strategy),
        model=dense_model(),
        workload=Workload(global_batch=4608, seq_len=4096),
        devices_per_node=4,
        rack_devices=72,
    )

    assert rack_nodes(launch) == nodes
    assert rack_nodes(replace(launch, rack_devices=0)) == 0


def test_a_launcher_with_an_srun_of_its_own_is_not_put_into_a_container(tmp_path: Path) -> None:
    item = next(item for item in STARTED if item.name == "gpt-neox")

    with pytest.raises(RequestError, match="--container: this launcher starts its own srun"):
        exported(item, tmp_path / "launch", job=Job(container="image"))


def test_racks_are_asked_for_in_the_batch_script() -> None:
    launch = Launch(
        strategy=parse_strategy("tp4 pp1 dp144 mbs1 zero1 sp"),
        model=dense_model(),
        workload=Workload(global_batch=1152, seq_len=4096),
        devices_per_node=4,
        rack_devices=72,
    )
    item = next(item for item in STARTED if item.name == "megatron-lm")

    assert "#SBATCH --segment=18\n" in item.express(launch)[SLURM]
    assert "--segment" not in item.express(replace(launch, rack_devices=0))[SLURM]
