"""Slow and plain: how long zero-bubble pipelines take, stage by stage, at the two ends of every run of equal ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from plain_stage import PlainStage

from forerun.spaces.strategies import Strategy


@dataclass(kw_only=True)
class PlainPass:
    """One virtual stage of a V: what it holds, and seconds of a microbatch."""

    held: tuple[object, ...]
    forward_s: float
    input_s: float
    weight_s: float


def run_ends(held: Sequence[object]) -> list[int]:
    """Numbers of the stages that do not stand between two equal ones."""
    last = len(held) - 1
    return [s for s in range(len(held)) if s in (0, last) or held[s - 1] != held[s] or held[s + 1] != held[s]]


def zb_h1_end_s(stages: list[PlainStage], number: int, count: float) -> float:
    """When the step ends if stage ``number`` decides."""
    pp, own = len(stages), stages[number]
    inputs = [stage.backward_s - stage.weight_s for stage in stages]
    behind = sum(stage.forward_s + inputs[s] for s, stage in enumerate(stages) if s > number)
    flight = min(pp - 1 - number, count - 1)
    fill = max(0.0, behind - flight * own.forward_s)
    drain = max(0.0, behind - flight * own.backward_s)
    wait = fill + drain if count > pp - number else max(fill, drain)
    start = sum(stage.forward_s for stage in stages[:number])
    # Behind its last input gradient: the weight gradients it owes, or the way up to the first stage, which owes one.
    owed = (min(number, count - 1) + 1) * own.weight_s
    way = sum(inputs[:number]) + stages[0].weight_s
    return start + count * own.pace_s - owed + wait + max(owed, way)


def zb_v_s(strategy: Strategy, chunks: list[PlainPass], count: float) -> float:
    """Follow the first microbatch down and up, its gradient up, then the last one's gradient up and down."""
    pp = strategy.pp
    pairs = [(chunks[d], chunks[2 * pp - 1 - d]) for d in range(pp)]
    ends = run_ends([(down.held, up.held) for down, up in pairs])
    most = max(count, 2 * pp - 1)

    def between(kind: str, way: int, start: int, end: int) -> float:
        """Passes of one kind on the devices from ``start`` up to, but not on ``end``."""
        return sum(float(getattr(pair[way], kind)) for pair in pairs[start:end])

    turn, first, final, back, done = {}, {}, {}, {}, {}
    for d in reversed(ends):
        down, up = pairs[d]
        own = between("forward_s", 0, 0, d) + min(2 * (pp - d) - 1, count) * down.forward_s
        below = [turn[e] + between("forward_s", 1, d + 1, e + 1) for e in turn]
        turn[d] = max([own, *below])
    for d in ends:
        down, up = pairs[d]
        passed, filled = min(2 * pp - d - 1, count), min(2 * (pp - d) - 1, count)
        own = turn[d] + (passed - filled) * down.forward_s + min(d + 1, count) * up.forward_s
        first[d] = max([own, *(first[e] + between("input_s", 1, e, d) for e in first)])
    for d in ends:
        down, up = pairs[d]
        inputs, weights = max(count - pp + d, 0), min(count - 1, most - d)
        own = first[d] + (count - min(2 * pp - d - 1, count)) * down.forward_s
        own += (count - min(d + 1, count)) * up.forward_s + (count - 1) * up.input_s + weights * up.weight_s
        own += inputs * down.input_s + min(inputs, most - pp) * down.weight_s
        final[d] = max([own, *(final[e] + between("input_s", 1, e, d) for e in final)])
    for d in reversed(ends):
        down, up = pairs[d]
        inputs, weights = max(count - pp + d, 0), min(count - 1, most - d)
        made, weighed = min(most - d, count), min(count - 1, max(most - pp, count - 1 - d))
        own = final[d] + up.input_s + (count - 1 - inputs) * down.input_s + (made - weights) * up.weight_s
        own += (weighed - min(inputs, most - pp)) * down.weight_s
        back[d] = max([own, *(back[e] + between("input_s", 0, d + 1, e + 1) for e in back)])
        done[d] = back[d] + down.input_s + (count - made) * up.weight_s + (count - weighed) * down.weight_s
    return max(done.values())
