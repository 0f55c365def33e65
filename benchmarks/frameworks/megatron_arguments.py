"""Megatron-LM's scripts, as its own parser and validation take them: ``megatron/training`` is in the wheels of
megatron-core from 0.19 on."""

import contextlib
import importlib
import io
import os
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.frameworks.stand_in import stand_ins

NO_GPU = ("transformer_engine", "mamba_ssm", "causal_conv1d", "wandb", "modelopt", "fla", "nvidia_resiliency_ext")
NO_GPU += ("tensorboard", "one_logger_utils", "flashinfer", "flash_attn", "multistorageclient", "nvdlfw_inspect")


def validated(words: Sequence[str], variables: Mapping[str, str], *, devices: int, name: str) -> tuple[Any, Any] | None:
    """Return the arguments of a script after Megatron-LM's validation, and the configuration of the model that it makes
    of them; None where it is not installed. ``name``: what the GPU is called, ``devices``: how many are started.

    Raises:
        SystemExit: the parser refuses an argument.
        AssertionError, ValueError, RuntimeError: the validation refuses the arguments.
    """
    try:
        with _imports():
            arguments = importlib.import_module("megatron.training.arguments")
            configs = importlib.import_module("megatron.training.argument_utils")
    except ImportError:
        return None
    told = {**variables, "WORLD_SIZE": str(devices), "RANK": "0"}
    command = ["pretrain.py", *words]
    with ExitStack() as held:
        held.enter_context(mock.patch.dict(os.environ, told, clear=True))
        held.enter_context(mock.patch.object(sys, "argv", command))
        held.enter_context(contextlib.redirect_stdout(io.StringIO()))
        held.enter_context(_a_gpu(name))
        read = arguments.parse_args()
        arguments.validate_args(read, {})
        return read, configs.core_transformer_config_from_args(read)


@contextmanager
def _imports() -> Iterator[None]:
    """Stand in for packages that need a GPU, and for what Python 3.12 has in ``typing``."""
    with ExitStack() as held:
        held.enter_context(stand_ins(*NO_GPU))
        if not hasattr(typing, "override"):
            held.enter_context(mock.patch.object(typing, "override", _same, create=True))
        yield


def _same(method: Callable[..., Any]) -> Callable[..., Any]:
    return method


@contextmanager
def _a_gpu(name: str) -> Iterator[None]:
    """Let Megatron-LM believe in a GPU, and in a Transformer Engine that is new enough for its checks."""
    major = 10 if "B200" in name or "B300" in name else 9
    told = SimpleNamespace(name=name, major=major, minor=0, multi_processor_count=132, total_memory=80 << 30)
    with ExitStack() as held:
        held.enter_context(stand_ins(*NO_GPU))
        held.enter_context(mock.patch("torch.cuda.get_device_properties", lambda *_: told))
        held.enter_context(mock.patch("torch.cuda.get_device_capability", lambda *_: (major, 0)))
        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith("megatron.") and hasattr(module, "is_te_min_version"):
                held.enter_context(mock.patch.object(module, "is_te_min_version", lambda *_, **__: True))
        yield
