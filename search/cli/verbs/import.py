"""``forerun import``: a configuration of a training framework as a strategy."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.files.documents import SCHEMA, dump_json
from forerun.search.formats import Imported
from forerun.search.formats.importing import import_files
from forerun.search.formats.shell import Given
from forerun.search.formats.software import why_relevant
from forerun.search.formats.table import format_named
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted
from forerun.spaces.frameworks import settings_text


def run(args: argparse.Namespace) -> int:
    """Read and print."""
    given = Given(arguments=args.arguments, variables=variables(args.set_var))
    imported = import_files(args.files, format=args.format, gpus=args.gpus, entry=args.entry, given=given)
    if args.json:
        print(dump_json({"schema": SCHEMA, **facts_of(imported)}))
        return 0
    print("\n".join(_lines(imported)))
    return 0


def variables(stated: Sequence[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` words by name."""
    by_name: dict[str, str] = {}
    for word in stated:
        name, separator, value = word.partition("=")
        if not separator or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise RequestError(f"--set-var takes NAME=VALUE, but got {quoted(word)}")
        if by_name.setdefault(name, value) != value:
            raise RequestError(f"--set-var {name} is given twice, as {quoted(by_name[name])} and {quoted(value)}")
    return by_name


def facts_of(imported: "Imported") -> dict[str, Any]:
    """Return an imported run as plain data."""
    import dataclasses

    data = {field.name: getattr(imported, field.name) for field in dataclasses.fields(imported)}
    data["strategy"] = str(imported.strategy)
    data["measured"] = None if imported.measured is None else dataclasses.asdict(imported.measured)
    plain: dict[str, Any] = _plain(data)
    return plain


def _plain(value: Any) -> Any:
    """Return a value in JSON form; dates and infinities of TOML become texts."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    return str(value)


def _lines(imported: "Imported") -> list[str]:

    lines = [f"strategy   {imported.strategy}", f"format     {imported.format} {imported.version}"]
    for title, facts in (("workload", imported.workload), ("model", imported.model)):
        if facts:
            lines.append(f"{title:<10} " + "  ".join(f"{key} {_shown(value)}" for key, value in facts.items()))
    if imported.measured is not None:
        steps = imported.measured
        speed = "" if steps.tflops_per_gpu is None else f", {steps.tflops_per_gpu:.1f} TFLOP/s per GPU"
        lines.append(
            f"measured   {steps.step_time_s:.4g} s per step (median of {steps.counted} after {steps.skipped}; "
            f"{steps.low_s:.4g} to {steps.high_s:.4g}){speed}"
        )
    lines += [f"assumed    {text}" for text in imported.defaults]
    lines += [f"note       {text}" for text in imported.notes]
    if imported.switches:
        lines.append(f"switches   {settings_text(imported.switches)}")
    framework = format_named(imported.format).framework or imported.format
    for key, value in imported.unmodelled.items():
        why = why_relevant(key, framework)
        lines.append(f"unmodelled {key} = {_shown(value)}" + (f" ({why})" if why else ""))
    for title, settings in (("other", imported.other), ("unknown", imported.unknown)):
        lines += [f"{title:<10} {key} = {_shown(value)}" for key, value in settings.items()]
    return lines


def _shown(value: Any) -> str:
    """Return a value on one line, control characters made visible."""
    text = str(value)
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= 120 else text[:117] + "..."
