"""Typed reading of a configuration that remembers which fields were read and which were filled in."""

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.spaces.errors import RequestError, nearest

# One meaning, several spellings: transformers' `attribute_map` of GPT-2, BLOOM, Falcon, gpt-oss, Gemma 2 and mixtures.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "intermediate_size": ("n_inner", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "seq_length"),
    "num_local_experts": ("num_experts", "n_routed_experts"),
    "num_experts_per_tok": ("experts_per_token",),
    "sliding_window": ("sliding_window_size",),
}
LARGEST_SIZE = 2**31
MOST_LAYERS = 10_000


class Fields:
    """The fields of one configuration. A field that is null counts as missing."""

    def __init__(self, values: Mapping[str, Any], *, source: str, defaults: Mapping[str, int]) -> None:
        self.source = source
        self.read: set[str] = set()
        self.filled_in: dict[str, object] = {}
        self._values = values
        self._defaults = defaults

    def size(self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST_SIZE) -> int:
        """The whole number ``name``; ``default`` (or the family's) fills in for a missing one.

        Raises:
            RequestError: it is missing without a default, no whole number, or outside ``least..most``.
        """
        found = self.optional_size(name, least=least, most=most)
        if found is not None:
            return found
        value = self._defaults.get(name, default)
        if value is None:
            spellings = " or ".join((name, *ALIASES.get(name, ())))
            near = nearest(name, [key for key in self._values if key not in self.read], count=1)
            hint = f"; did you mean it by {near[0]}?" if near else ""
            raise RequestError(f"{self.source}: the required field {spellings} is missing{hint}")
        self.filled_in[name] = value
        return value

    def optional_size(self, name: str, *, least: int = 1, most: int = LARGEST_SIZE) -> int | None:
        """The whole number ``name``, None where missing; the family's default does not fill in."""
        spelling, value = self._find(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise RequestError(f"{self.source}: {spelling} must be a whole number, but got {_shown(value)}")
        if not least <= value <= most:
            raise RequestError(f"{self.source}: {spelling} must be in {least}..{most}, but got {_shown(value)}")
        return value

    def has(self, name: str) -> bool:
        """True if ``name`` is given or the family has a default for it."""
        return name in self._defaults or self._find(name)[1] is not None

    def flag(self, name: str, default: bool) -> bool:
        """The boolean ``name``, ``default`` where missing."""
        spelling, value = self._find(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise RequestError(f"{self.source}: {spelling} must be true or false, but got {_shown(value)}")
        return value

    def text(self, name: str) -> str | None:
        """The text ``name``, None where missing."""
        spelling, value = self._find(name)
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{self.source}: {spelling} must be a text, but got {_shown(value)}")
        return value

    def listed(self, name: str, kind: type, *, length: int | None = None) -> Sequence[Any] | None:
        """The list ``name`` of values of type ``kind``, None where missing; ``length`` is what it must have."""
        spelling, value = self._find(name)
        if value is None:
            return None
        if not isinstance(value, list) or any(type(item) is not kind for item in value):
            raise RequestError(f"{self.source}: {spelling} must be a list of {kind.__name__}, but got {_shown(value)}")
        if length is not None and len(value) != length:
            raise RequestError(
                f"{self.source}: {spelling} must have one entry for each of {length} layers, but got {len(value)}"
            )
        return value

    def _find(self, name: str) -> tuple[str, Any]:
        """The spelling in use and its value; all spellings count as read and must agree."""
        found: tuple[str, Any] = (name, None)
        for spelling in (name, *ALIASES.get(name, ())):
            value = self._values.get(spelling)
            if spelling in self._values:
                self.read.add(spelling)
            if value is None:
                continue
            if found[1] is not None and found[1] != value:
                raise RequestError(
                    f"{self.source}: {found[0]}={_shown(found[1])} and {spelling}={_shown(value)} mean the same "
                    "and disagree; remove one of them"
                )
            found = (spelling, value)
        return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
