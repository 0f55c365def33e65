"""Requests of operator graphs, and the command line in tests."""

import dataclasses

import pytest

from forerun.search.cli import main
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.opgraph.batch import PerDevice

RESNET = "resnet50 --cluster abci-v100 --global-batch 64/gpu"


def setting(model: str = "resnet50", gpus: str = "4..16", **changes: object) -> Setting[GraphContext]:
    request = Request(model=model, cluster="abci-v100", gpus=gpus, global_batch=PerDevice(64))
    return resolve(dataclasses.replace(request, **changes))  # type: ignore[arg-type]


def run(text: str, capsys: pytest.CaptureFixture[str], *, code: int = 0, words: tuple[str, ...] = ()) -> str:
    assert main([*text.split(), *words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err
