"""Scaling recipes of 8-bit precisions: mxfp8 is fp8 with the scales of MX."""

from collections.abc import Collection, Mapping

from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.frameworks.switches import available, with_settings

RECIPE, MX = "fp8-recipe", "mx"


def implied(precision: str | None) -> Mapping[str, str]:
    """Return the settings of switches implied by a precision.

    >>> implied("mxfp8"), implied("bf16")
    ({'fp8-recipe': 'mx'}, {})
    """
    return {RECIPE: MX} if precision == "mxfp8" else {}


def agreed(profile: FrameworkProfile, precision: str, named: Collection[str]) -> tuple[FrameworkProfile, str]:
    """Return a profile and a precision that agree about MX, where either of them has it.

    ``named``: switches set by the user.

    Raises:
        RequestError: they contradict each other.
    """
    current = available(profile).get(RECIPE)
    if precision == "fp8" and current == MX:
        return profile, "mxfp8"
    if precision == "mxfp8" and current not in (None, MX):
        if RECIPE in named:
            raise RequestError(
                f"precision mxfp8 is fp8 with {RECIPE}={MX}, but got {RECIPE}={current}; drop one of the two"
            )
        return with_settings(profile, implied(precision)), precision
    return profile, precision
