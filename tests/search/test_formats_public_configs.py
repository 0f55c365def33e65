"""Public configurations import with the right strategy and with nothing lost (sources: public_configs/README.md)."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from forerun.search.formats import import_files
from forerun.search.formats.command_line import options, split_command
from forerun.search.formats.settings import flatten
from forerun.search.formats.shell import read_script

FOLDER = Path(__file__).with_name("public_configs")


EXPECTED = yaml.safe_load(FOLDER.with_suffix(".yaml").read_text("utf-8"))
INTERPRETED = EXPECTED["interpreted"]


@pytest.mark.parametrize(
    "case", EXPECTED["says"], ids=lambda case: f"{case['file']}-{case.get('given', {}).get('entry', '')}"
)
def test_strategy_and_workload(case: dict[str, Any]) -> None:
    imported = import_files([FOLDER / case["file"]], **case.get("given", {}))

    assert (imported.format, str(imported.strategy)) == (case["format"], case["strategy"])
    assert imported.workload == case["workload"]
    assert len(imported.notes) == case.get("notes", 0)
    assert not imported.unknown
    assert imported.version


@pytest.mark.parametrize("file", INTERPRETED)
def test_every_setting_is_interpreted_or_listed(file: str) -> None:
    found = import_files([FOLDER / file])
    names = set(_names(FOLDER / file))

    assert names - {*found.other, *found.unmodelled, *found.unknown} == set(INTERPRETED[file])
    assert {*found.other, *found.unknown} <= names


def _names(path: Path) -> Iterator[str]:
    """Yield the names of all settings of a file, as they are listed."""
    text = path.read_text()
    if path.suffix == ".sh":
        commands = [split_command(command)[1] for command in read_script(text, path.name).commands]
        yield from ("--" + name for command in commands for name in options(command)[0])
        return
    data = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    data = json.loads(text) if path.suffix == ".json" else data
    yield from flatten({key.removesuffix("_config") if "bridge" in path.name else key: v for key, v in data.items()})


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("gpt3_175b.sh", "--micro-batch-size 1", "--micro-batch-size 1 --made-up 3"),
        ("llama3_70b.toml", "[parallelism]", "[parallelism]\nmade_up = 3"),
        ("ds_config_zero3.json", '"steps_per_print"', '"made_up": 3, "steps_per_print"'),
        ("accelerate_nd.yaml", "machine_rank: 0", "machine_rank: 0\nmade_up: 3"),
        ("accelerate_deepspeed.yaml", "deepspeed_config:", "deepspeed_config:\n  made_up: 3"),
        ("nanotron_tiny_llama.yaml", "parallelism:", "parallelism:\n  made_up: 3"),
        ("bridge_llama3_8b.yaml", "model_config:", "model_config:\n  made_up: 3"),
        ("calculon_175b_seqsel.json", '"num_procs"', '"made_up": 3, "num_procs"'),
        ("simumax_ep4_pp2.json", '"seq_len"', '"made_up": 3, "seq_len"'),
    ],
)
def test_an_unknown_setting_is_listed(file: str, old: str, new: str, tmp_path: Path) -> None:
    text = (FOLDER / file).read_text()
    assert old in text
    path = tmp_path / file
    path.write_text(text.replace(old, new, 1))

    unknown = import_files([path]).unknown

    assert [(name.replace("-", "_").lstrip("_").split(".")[-1], str(value)) for name, value in unknown.items()] == [
        ("made_up", "3")
    ]


def test_a_slip_of_a_known_flag_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("torchrun pretrain_gpt.py --num-layers 4 --use-distributd-optimizer --lr 1e-4\n")

    found = import_files([path], gpus=8)

    assert set(found.unknown) == {"--use-distributd-optimizer"}
    assert set(found.other) == {"--lr"}
