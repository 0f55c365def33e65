"""Extension of a profile by the operators of another strategy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from forerun.search.measured.profiling.document import Line, Profile, read_profile
from forerun.search.measured.profiling.operators import ProfiledOperator
from forerun.spaces.errors import RequestError


def profile_to_extend(path: Path, device: str) -> Profile | None:
    """Return the profile of a file, None if the file does not exist.

    Raises:
        RequestError: the file is not a profile, or the profile is of another device.
    """
    if not path.exists():
        return None
    known = read_profile(path)
    if known.device != device:
        raise RequestError(f"{path} is a profile of {known.device}, not of {device}; name another file")
    return known


def left_to_measure(operators: Sequence[ProfiledOperator], known: Profile | None) -> list[ProfiledOperator]:
    """Return the operators missing in a profile."""
    measured = set() if known is None else {(line.name, line.shape) for line in known.operators}
    return [one for one in operators if (one.name, tuple(map(float, one.shape))) not in measured]


def joined(known: Profile | None, new: Profile) -> Profile:
    """Return a profile with the measurements of both; ``new`` overrides."""
    if known is None:
        return new
    return replace(
        new,
        made={**known.made, **new.made},
        operators=_union(known.operators, new.operators),
        collectives=_union(known.collectives, new.collectives),
    )


def _union(known: Sequence[Line], new: Sequence[Line]) -> tuple[Line, ...]:
    lines = {(line.name, tuple(map(float, line.shape))): line for line in (*known, *new)}
    return tuple(lines.values())
