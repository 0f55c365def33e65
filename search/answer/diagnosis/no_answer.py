"""The end of a search without rows."""

from typing import Any

from forerun.spaces.errors import InfeasibleError


class NoAnswer(InfeasibleError):
    """A search has no rows; ``document`` is the answer as JSON, with the diagnosis under ``infeasible``."""

    def __init__(self, text: str, document: dict[str, Any], infeasible: dict[str, Any]) -> None:
        super().__init__(text)
        self.document = {**document, "infeasible": infeasible}
