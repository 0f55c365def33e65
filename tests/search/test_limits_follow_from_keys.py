"""A launcher refuses what none of its keys says, and writes what it reads, without a word beside its table."""

import json

import pytest
from forerun_launches import DENSE

from forerun.search.formats.contract import Files, Format, Launch, LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import Launcher, above_one, decide, switched_on
from forerun.search.formats.limits import COMMON
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.syntax import document
from forerun.search.formats.writing import nested, settings_of
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

LAUNCHER = Launcher(
    name="toy",
    version="1",
    title="Toy",
    keys=(
        decide("tp", "split.matrices", written=above_one("tp")),
        decide("devices", "gpus"),
        decide("mbs", "batch.each"),
        decide("global_batch", "batch.all", "batch.total"),
        decide("seq_len", "length"),
        decide("zero", "shard", words={"nothing": 0, "all": 3}),
        decide("precision", "half", words=switched_on("bf16")),
    ),
    syntax=document,
    marks=lambda source: source.suffix == ".json",
    harmless=lambda name: False,
)


def _write(launch: Launch) -> Files:
    return {"toy.json": json.dumps(nested(settings_of(LAUNCHER.keys, launch)))}


TOY: Format = format_of(
    LAUNCHER, main="toy.json", limits=(*COMMON, *by_keys(LAUNCHER, cp="it was removed")), write=_write
)


def _launch(text: str, precision: str = "bf16") -> Launch:
    workload = Workload(global_batch=64, seq_len=4096, precision=precision)
    return Launch(strategy=parse_strategy(text), model=DENSE, workload=workload, devices_per_node=8)


@pytest.mark.parametrize("text", ["dp8 mbs2 zero3", "tp2 dp4 mbs1", "tp4 dp2 mbs4 zero3"])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_what_keys_write_they_read(text: str, precision: str) -> None:
    launch = _launch(text, precision)
    found = TOY.read(LaunchFile(name="toy.json", text=TOY.express(launch)["toy.json"]))

    assert found.strategy == launch.strategy
    assert (found.workload["global_batch"], found.workload["precision"]) == (64, precision)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pp2 dp4 mbs1", "pp=2"),
        ("cp2 dp4 mbs1", "cp=2: it was removed"),
        ("tp2 dp4 mbs1 sp", "sp: Toy"),
        ("dp8 mbs1 zero2", "zero=2: Toy has only 0, 3"),
        ("dp8 mbs1 zero3 shard=4", "shard=4"),
    ],
)
def test_what_no_key_says_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        TOY.express(_launch(text))
    near = TOY.nearest(_launch(text))
    assert near is not None
    TOY.express(near)


def test_a_precision_without_a_word_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(RequestError, match="precision fp8: Toy has only bf16, fp32"):
        TOY.express(_launch("dp8 mbs1", "fp8"))
