"""Damaged and hostile files give one clear message; nothing in them is ever run; exported scripts are safe."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from forerun_launches import DENSE, launches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.formats import FORMATS, Launch, import_files, import_texts, writable
from forerun.search.formats.launchers import LAUNCH, SLURM
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

FOLDER = Path(__file__).with_name("public_configs")
MOST = settings(max_examples=tries(60), suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    "path", sorted(p for p in FOLDER.iterdir() if p.is_file() and p.suffix != ".md"), ids=lambda path: path.name
)
@MOST
@given(data=st.data())
@pytest.mark.slow
def test_damage_never_surprises(path: Path, data: st.DataObject) -> None:
    """A public file cut off, or with a piece replaced, is read or refused; nothing else is raised."""
    text = path.read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    junk = data.draw(
        st.sampled_from(("", "\0", "'", '"', "$(", "${A", "[", "{", "]", "-1", "\n", "99999999999999", "é"))
    )
    damaged = text[:start] + junk + (text[end:] if data.draw(st.booleans()) else "")
    entry = "llama3_70b" if path.suffix == ".py" else None

    try:
        import_texts({path.name: damaged}, entry=entry)
    except RequestError as error:
        assert str(error)


def test_files_that_are_none(tmp_path: Path) -> None:
    binary = tmp_path / "a.sh"
    binary.write_bytes(b"\xff\xfe\x00")
    empty = tmp_path / "b.sh"
    empty.write_text(" \n")
    for path, expected in (
        (binary, "UTF-8"),
        (empty, "empty"),
        (tmp_path / "none.sh", "no such file"),
        (Path("/dev/null"), "regular"),
        (tmp_path / "x\0y", "cannot be read"),
    ):
        with pytest.raises(RequestError, match=expected):
            import_files([path])


def test_nothing_in_a_script_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"""
X=$(touch {mark})
Y=`touch {mark}`
eval "touch {mark}"
N=$((1 + $(touch {mark})))
torchrun --nproc_per_node 8 p.py --num-layers 8 --tensor-model-parallel-size 2 --data-path "$(touch {mark})"
"""
    found = import_texts({"run.sh": script})

    assert found.strategy.tp == 2
    assert found.other["--data-path"] == "$(touch…)"
    assert not mark.exists()


def test_nothing_in_a_python_file_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"""
open({str(mark)!r}, "w")
def config():
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=open({str(mark)!r}, "w"), seq_len=2048),
        parallelism=ParallelismConfig(data_parallel_shard_degree=2),
    )
"""
    with pytest.raises(RequestError, match="whole number"):
        import_texts({"c.py": text})
    assert not mark.exists()


@pytest.mark.slow
@settings(MOST, max_examples=tries(10))
@given(name=st.text(max_size=40))
def test_names_stay_harmless_in_every_file(name: str) -> None:
    """Any text as a name: scripts keep the same commands, documents the same settings."""
    plain = Launch(
        strategy=parse_strategy("tp1 pp1 dp4 mbs1"),
        model=DENSE,
        workload=Workload(global_batch=64, seq_len=2048),
        devices_per_node=8,
    )
    for item in writable():
        if any(limit.broken(plain) for limit in item.limits):
            continue
        named = Launch(
            strategy=plain.strategy, model=plain.model, workload=plain.workload, devices_per_node=8, name=name
        )
        ours, theirs = item.express(plain), item.express(named)
        for file in (LAUNCH, SLURM):
            if file in ours:
                assert _code(theirs[file]) == _code(ours[file])
        if item.main.endswith(".py"):
            ast.parse(theirs[item.main])
        assert import_texts(theirs).strategy == plain.strategy


def _code(script: str) -> list[str]:
    """Return the lines of a script that a shell reads."""
    return [line for line in script.split("\n") if not line.startswith("#")]


STARTERS = ("torchrun", "accelerate", "deepspeed", "python", "python3", "llamafactory-cli")
HOSTILE = "$(touch pwned) `touch pwned`; touch pwned\ntouch pwned\n' \" #"


@pytest.mark.parametrize("item", writable(), ids=lambda item: item.name)
def test_exported_scripts_run_only_the_launcher(item: object, tmp_path: Path) -> None:
    """bash runs every exported script with a hostile name against stub launchers: nothing else happens."""
    texts = ("tp1 pp1 dp8 mbs1", "tp2 pp1 dp4 mbs1 zero1 sp recompute=full", "tp1 pp1 dp8 mbs1 zero3 recompute=full")
    done = 0
    for text in texts:
        launch = Launch(
            strategy=parse_strategy(text),
            model=DENSE,
            workload=Workload(global_batch=64, seq_len=2048),
            devices_per_node=8,
            name=HOSTILE,
        )
        assert isinstance(item, type(FORMATS[0]))
        if any(limit.broken(launch) for limit in item.limits) or LAUNCH not in (files := item.express(launch)):
            continue
        done += 1
        stubs = tmp_path / "bin"
        stubs.mkdir(exist_ok=True)
        for stub in (*STARTERS, "srun", "scontrol"):
            (stubs / stub).write_text('#!/bin/bash\nprintf "%s\\n" "$0" "$@" >> calls\n')
            (stubs / stub).chmod(0o755)
        for name, body in files.items():
            (tmp_path / name).write_text(body)
        environment = {"PATH": f"{stubs}:/usr/bin:/bin", "RECIPE": "llama", "SLURM_JOB_NODELIST": "a"}
        for script in (LAUNCH, SLURM):
            subprocess.run(["bash", script], cwd=tmp_path, env=environment, check=True, capture_output=True)
        assert not (tmp_path / "pwned").exists()
        assert "srun" in (tmp_path / "calls").read_text()
    assert done or item.name == "forerun"  # type: ignore[attr-defined]  # a Format, by the parameter list


@MOST
@given(launch=launches())
def test_every_value_of_a_script_is_quoted(launch: Launch) -> None:
    """Words of the lists of arguments survive a round trip through shlex; what bash expands stands in double quotes."""
    for item in writable():
        near = item.nearest(launch)
        files = {} if near is None else item.express(near)
        for line in _code(files.get(LAUNCH, "")):
            told = line.strip().removesuffix("\\").strip()
            if told.startswith("--") and "$" not in told:
                assert shlex.join(shlex.split(told)) == told
            assert not re.search(r"(?<![\"{-])\$", re.sub(r'"[^"]*"', '""', line))
