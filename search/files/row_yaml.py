"""YAML whose tables stand row by row: lists of plain values on one line, everything else a key a line."""

from typing import Any

import yaml


class RowDumper(yaml.SafeDumper):
    """A dumper for ``yaml.dump``; values that are the same object are written twice, not referred to."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        """Return a list as a node, on one line where it holds no lists or mappings."""
        plain = not any(isinstance(item, list | dict) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=plain)

    def ignore_aliases(self, data: Any) -> bool:
        """Return that nothing is referred to."""
        return True
