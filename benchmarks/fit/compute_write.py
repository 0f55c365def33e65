"""Write the fitted constants as YAML that a person can read: four digits, one line per record."""

from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import yaml

_HEADER = """\
# Compute constants by device: what simulator/costs/efficiency.py loads. Written by benchmarks/fit/compute.py (see
# benchmarks/fit/README.md for its tables of errors); the meaning of each field stands with the classes there.
"""


class _Writer(yaml.SafeDumper):
    """Writes innermost mappings and lists on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        """Repeat equal records in full, so that every device reads on its own."""
        return True


def write_yaml(path: Path, document: dict[str, Any]) -> None:
    """Write ``document``, rounding every number to four digits."""
    text = yaml.dump(_plain(document), Dumper=_Writer, sort_keys=False, width=120, default_flow_style=None)
    path.write_text(_HEADER + text, encoding="utf-8")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
