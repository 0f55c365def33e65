"""torchtitan since February 2026: a Python function that returns ``Trainer.Config``.

Two spellings: release 0.3.0 counts sequences (``local_batch_size``), the main branch after it counts tokens
(``num_tokens_per_microbatch_per_dp_rank``). Files are parsed, never imported: only literals are read.
Source: ``torchtitan/config/configs.py`` and ``torchtitan/trainer.py``.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import LaunchFacts, Stated
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.limits import precisions, when
from forerun.search.formats.python_text import CALLED, UNKNOWN, PythonReader, parse_python
from forerun.search.formats.syntax import dotted_arguments
from forerun.search.formats.titan_keys import PACKED, TITAN_LIMITS, adjust_titan, parallelism
from forerun.search.formats.torchtitan_write import MAIN, write
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute

NAME, RELEASE = "torchtitan", "torchtitan-0.3"

CONVERTERS = {"fp8": "Float8LinearConverter", "mxfp8": "MXFP8LinearConverter", "nvfp4": "NVFP4LinearConverter"}

LIMITS = (
    *TITAN_LIMITS,
    when(lambda s: s.etp > 1, "etp > 1: expert parallelism takes over the ranks of tp (etp=1)", etp=1),
    precisions(("bf16", "fp32"), "converters belong to the model's registry; add one to model_registry(...) there"),
)


def read(source: LaunchFile) -> Stated:
    """Return the keyword arguments of the ``Trainer.Config(...)`` that a function returns, by dotted name.

    Raises
    ------
    RequestError
        The file is not Python, or has no such function, or several and no ``entry``.
    """
    reader = PythonReader(parse_python(source.text, source.name))
    every = {name: reader.function(name) for name in reader.functions}
    trainers = {name: config for name, config in every.items() if str(config.get(CALLED)).endswith("Trainer.Config")}
    entry = source.entry or next(iter(trainers), None)
    if entry not in trainers:
        what = f"function {source.entry}" if source.entry else "function"
        known = f"; it has {', '.join(trainers)}" if trainers else ""
        note = "what another file makes is read from that file"
        raise RequestError(f"{source.name} has no {what} that returns Trainer.Config(...); {note}{known}")
    if len(trainers) > 1 and source.entry is None:
        shown = ", ".join(list(trainers)[:20]) + (", …" if len(trainers) > 20 else "")
        raise RequestError(f"{source.name} has {len(trainers)} configurations ({shown}); add --entry {entry}")
    values = _flat(trainers[entry])
    module = re.search(r"^from torchtitan\.models\.(\w+) import ", source.text, re.MULTILINE)
    values = {name.replace("model_spec.", "model_registry."): value for name, value in values.items()}
    values |= dotted_arguments(source)
    return Stated(values={**values, **({"model_registry.module": module[1]} if module else {})})


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested calls by dotted name: each under the called name, with unknown values marked."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{prefix}{key}": f"{value.get(CALLED, '')}()", **_flat(value, f"{prefix}{key}.")}
        elif key != CALLED:
            flat[f"{prefix}{key}"] = "computed by code" if value is UNKNOWN else value
    return flat


def adjust(facts: LaunchFacts) -> None:
    """Determine the spelling, 8-bit converters, and recomputed layers."""
    settings, values = facts.settings, facts.values
    for section in ("training", "parallelism", "model_spec"):
        settings.raw(section)  # the call itself; its arguments are separate settings
    adjust_titan(facts)
    if "training.num_tokens_per_microbatch_per_dp_rank" not in settings:
        facts.launcher = dataclasses.replace(facts.launcher, name=RELEASE, version="0.3.0")
    stated = f"{ {key: settings.raw(key) for key in settings.names() if CONVERTING.match(key)} }"
    precision = next((kind for kind, converter in CONVERTERS.items() if converter in stated), None)
    if precision is not None:
        values["precision"] = precision
    mode, policy = settings.text("activation_checkpoint.mode"), settings.text("activation_checkpoint")
    policy = mode or policy
    if policy is None:
        policy = "none" if "activation_checkpoint" in settings.every() else "selective"
    if "memory" in policy.lower():
        facts.notes.append("recompute by a memory budget is read as recompute=selective")
    kinds = {"full": Recompute.FULL, "none": Recompute.NONE}
    values["recompute"] = next((kind for word, kind in kinds.items() if word in policy.lower()), Recompute.SELECTIVE)


CONVERTING = re.compile(r"model_converters|model_registry\.(\w*converters|\w*quant\w*)")
LAUNCHER = read_launcher(NAME, syntax=read, adjust=adjust)
TOKENS = ("mbs_tokens", "global_tokens", "accumulation", "training.max_context_length")
SEQUENCES = ("local_batch", "global_batch", "mbs", "training.seq_len")


def _settings(batches: tuple[str, ...]) -> Any:
    """Return the function that writes settings, including batches by the keys ``batches``."""
    leave = {*TOKENS, *SEQUENCES} - {*batches}
    return lambda launch: parallelism(LAUNCHER, launch, head="lm_head", leave=leave)


FORMAT = format_of(
    LAUNCHER,
    main=MAIN,
    limits=LIMITS,
    write=lambda launch: write(launch, _settings(TOKENS)(launch), tokens=True),
    packs=PACKED,
)
RELEASE_FORMAT = format_of(
    dataclasses.replace(LAUNCHER, name=RELEASE, version="0.3.0"),
    main=MAIN,
    limits=LIMITS,
    write=lambda launch: write(launch, _settings(SEQUENCES)(launch), tokens=False),
    packs=PACKED,
)
