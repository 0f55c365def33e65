"""Conversion of flat records to a pandas table; pandas is optional."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from forerun.spaces.errors import RequestError


def frame_of(lines: Sequence[Mapping[str, Any]]) -> Any:
    """Return flat records as a ``pandas.DataFrame`` with a column per field.

    Raises:
        RequestError: pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise RequestError(
            "to_pandas() needs pandas, which is not installed; run `pip install pandas`, or use to_csv()"
        ) from None
    return pandas.DataFrame(list(lines))
