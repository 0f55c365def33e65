"""Known settings without effect on a strategy, by format."""

import re
from collections.abc import Callable, Mapping
from functools import cache

from forerun.spaces.documents.package_data import package_yaml


def harmless_by(*tables: str) -> Callable[[str], bool]:
    """Build a predicate for harmless settings.

    Parameters
    ----------
    *tables
        Names of tables in ``data/harmless.yaml``, read by the first call.

    Examples
    --------
    >>> harmless_by("megatron-lm")("lr_decay_style"), harmless_by("megatron-lm")("tensr_model_parallel_size")
    (True, False)
    """
    return lambda name: any(_rule(table)(name) for table in tables)


@cache
def _rule(table: str) -> Callable[[str], bool]:
    words = {kind: text.split() for kind, text in _tables().get(table, {}).items()}
    sections, names = {*words.get("sections", ())}, {*words.get("names", ())}
    begins = re.compile("|".join(words.get("prefixes", ["(?!)"])))
    return lambda name: name.partition(".")[0] in sections or name in names or begins.match(name) is not None


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    tables: Mapping[str, Mapping[str, str]] = package_yaml("forerun.search.formats", "data", "harmless.yaml")
    return tables
