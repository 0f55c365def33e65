"""Settings and estimated duration of measurements, without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forerun.search.measured.profiling.operators import ProfiledOperator
from forerun.spaces.errors import RequestError

WARM = 2
LONGEST_S = 1.0
"""Most seconds of repetitions of an operator, once it has enough readings for a median."""
FEWEST = 3
_SETUP_S = 2e-3
"""Seconds to create the tensors of an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingSettings:
    """``device``: cpu or cuda; ``repeat``: readings per operator; ``largest_bytes``: operators that need more are
    skipped; ``seconds``: time limit of operators (None: no limit).
    """

    device: str
    precision: str
    repeat: int
    largest_bytes: float
    seconds: float | None = None


def expected_s(
    operators: Sequence[ProfiledOperator],
    settings: ProfilingSettings,
    slower: Callable[[Sequence[ProfiledOperator], ProfilingSettings], float] | None = None,
) -> float:
    """Estimate the seconds needed to measure operators.

    ``slower``: measured over catalogue time of a family's operators; None: 1.
    """
    families: dict[str, list[ProfiledOperator]] = {}
    for one in operators:
        families.setdefault(one.name.split()[0], []).append(one)
    factors = {name: slower(reference, settings) if slower else 1.0 for name, reference in families.items()}
    total = 0.0
    for one in operators:
        each = factors[one.name.split()[0]] * one.fitted_s
        readings = min(settings.repeat, max(FEWEST, int(LONGEST_S / max(each, 1e-9))))
        total += _SETUP_S + each * (WARM + 1 + readings)
    return total


def device_of(asked: str, *, planned: bool) -> str:
    """Return the device of measurements; ``asked`` is cpu, cuda or auto. A ``planned`` measurement needs no torch.

    Raises:
        RequestError: there is no such device, or no torch to measure with.
    """
    if asked not in ("cpu", "cuda", "auto"):
        raise RequestError(f"--device is cpu, cuda or auto, but got {asked!r}")
    try:
        import torch
    except ImportError:
        if planned:
            return "cuda" if asked == "auto" else asked
        raise RequestError('profiling needs torch; run `pip install "forerun[profile]"`') from None
    if asked == "cuda" and not torch.cuda.is_available():
        raise RequestError("torch sees no CUDA device here; use --device cpu, or a build of torch with CUDA")
    return asked if asked != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
