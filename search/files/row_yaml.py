"""Dumpers of YAML for editing by hand."""

from typing import Any

import yaml

_DUMPER: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


class PlainDumper(_DUMPER):  # type: ignore[misc]  # one of two classes
    """A dumper for ``yaml.dump`` without anchors: an object that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Disable references for all data."""
        return True


class RowDumper(PlainDumper):
    """A ``PlainDumper`` that writes lists of plain values on one line, as the rows of a table."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        """Return a list as a node, on one line if it has no lists or mappings."""
        plain = not any(isinstance(item, list | dict) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=plain)
