"""How many examples a property is tried on: fewer in every run, all of them in ``make test-all``."""

from hypothesis import settings

FEWEST = 5
"""Examples that every property gets, however few it has."""


def tries(full: int) -> int:
    """Return the number of examples under the Hypothesis profile in use, where the profile ``full`` has ``full``."""
    share = settings().max_examples / settings.get_profile("full").max_examples
    return max(min(FEWEST, full), round(full * share))
