"""JSON and TOML as plain data, with the limits of YAML; both are parsed by the standard library.

A text that is not such a document, or has a duplicate key or an illegal value, raises RequestError.
"""

import json
import re
from typing import Any

from forerun.spaces.documents.syntax import json_mistake, toml_mistake
from forerun.spaces.documents.values import MAX_DEPTH, MOST_DIGITS, TOO_DEEP, check_tree
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted

JSON_VALUES, OWN_VALUES = 2_000_000, 20_000_000
"""Limits of values of a document, and of forerun's own (100,000 rows of a leaderboard have half of this limit). Values
are counted, in C, before anything is built."""
_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s.="',\[\]{}]+)"""
_DOTTED = re.compile(rf"""(?<![^\s="',\[\]{{}}])(?:{_KEY}[ \t]*\.[ \t]*){{{MAX_DEPTH + 1}}}""")
"""A key with more parts than a document's depth; strings of a list are separated by commas."""


def read_json(text: str, source: str, *, own: bool = False, infinite: bool = False) -> Any:
    """Return the value of a JSON text.

    ``own``: a result of forerun, which may be large. ``infinite``: ``Infinity`` and ``NaN`` are read as texts, which a
    numeric setting refuses by name.
    """
    most = OWN_VALUES if own else JSON_VALUES
    # Every value but the first follows one of these.
    if sum(map(text.count, ",[{")) > most:
        raise RequestError(f"{source}: a document has at most {most:,} values")

    def constant(name: str) -> str:
        if infinite:
            return name
        raise RequestError(f"a number must be finite, but got {name}")

    try:
        return check_tree(json.loads(text, object_pairs_hook=_unique, parse_constant=constant), counts=own)
    except json.JSONDecodeError as error:
        place = f"{source}, line {error.lineno}, column {error.colno}"
        raise RequestError(f"{place}: {json_mistake(text, error.pos)}") from None
    except RecursionError:
        raise RequestError(f"{source}: {TOO_DEEP}") from None
    except ValueError:  # Python does not convert numbers of thousands of digits
        raise RequestError(f"{source}: a number has at most {MOST_DIGITS} digits") from None
    except RequestError as error:
        raise RequestError(f"{source}: {error}") from None


def read_toml(text: str, source: str) -> dict[str, Any]:
    """Read a TOML text."""
    import tomllib

    if _DOTTED.search(text):  # tomllib takes quadratic time in their number
        raise RequestError(f"{source}: {TOO_DEEP}")
    try:
        tree: dict[str, Any] = check_tree(tomllib.loads(text))
    except RecursionError:
        raise RequestError(f"{source}: {TOO_DEEP}") from None
    except RequestError as error:
        raise RequestError(f"{source}: {error}") from None
    except ValueError as error:
        raise RequestError(f"{source}, {toml_mistake(text, str(error))}") from None
    return tree


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RequestError(f"key {quoted(key)} is given twice")
            seen.add(key)
    return mapping
