"""Two mixers in parallel, as in Falcon-H1: they read the same input, and their outputs are summed."""

import math
from dataclasses import dataclass

from forerun.spaces.models.parts import Kept, Mixer, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelMixers:
    """``members`` in execution order; tensor ranks sum their outputs once, together."""

    members: tuple[Mixer, ...]

    @property
    def name(self) -> str:
        """Name for users."""
        return " beside ".join(member.name for member in self.members)

    @property
    def heads(self) -> int:
        """Largest number that divides the heads of all members."""
        return math.gcd(*(member.heads for member in self.members))

    @property
    def kv_heads(self) -> int:
        """Largest number that divides the key heads of all members."""
        return math.gcd(*(member.kv_heads for member in self.members))

    def steps(self, hidden: int) -> tuple[Step, ...]:
        """List the members' operators, one member after the other."""
        return tuple(step for member in self.members for step in member.steps(hidden))

    def vectors(self, hidden: int) -> tuple[int, int]:
        """Count the parameters of all members."""
        pairs = [member.vectors(hidden) for member in self.members]
        return sum(cut for cut, _ in pairs), sum(replicated for _, replicated in pairs)

    def kept(self, hidden: int) -> Kept:
        """List the tensors of all members; ``last``: the last member's, the others' are inner ones."""
        parts = [member.kept(hidden) for member in self.members]
        inner = tuple(width for part in parts for width in part.inner)
        return Kept(inner=inner, last=parts[-1].last, own_columns=sum(part.own_columns for part in parts))
