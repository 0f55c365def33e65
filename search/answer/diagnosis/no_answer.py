"""The end of a search that has no row to show."""

from typing import Any

from forerun.spaces.errors import InfeasibleError


class NoAnswer(InfeasibleError):
    """A search has no row to show; ``document`` is the answer as JSON, with what is known under ``infeasible``."""

    def __init__(self, text: str, document: dict[str, Any], infeasible: dict[str, Any]) -> None:
        super().__init__(text)
        self.document = {**document, "infeasible": infeasible}
