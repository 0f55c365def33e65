"""Slow and plain: the longest path through an interleaved schedule by nominal times, and what it takes."""

from dataclasses import dataclass

from forerun.simulator.pipeline.interleaved import STEPS
from forerun.spaces.models.flops import layer_forward_flops
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.strategies import Context, Strategy

Pass = tuple[bool, int, int]
"""Whether it is backward, its microbatch and its virtual stage."""


@dataclass(kw_only=True)
class PlainChunk:
    """A virtual stage: its layers (numbers of the model's entries) and the seconds of a microbatch."""

    layers: list[int]
    head: bool
    forward_s: float
    backward_s: float


def lap_path_s(context: Context, strategy: Strategy, microbatches: float, chunks: list[PlainChunk]) -> float:
    """Seconds of the longest of the nominal paths, beside what the host prepares for every microbatch."""
    model, seq_len = context.model, context.workload.seq_len
    work = [layer_forward_flops(layer, model.hidden, seq_len) for layer in model.layers]
    unit = STEPS / max(work)
    head = unit * 2.0 * seq_len * model.vocab * model.hidden * (1 + model.mtp_layers)
    experts = [layer.feeds_forward and isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers]
    slow = [2 if mixture else 1 for mixture in experts]
    slow_head = 2 if any(experts) else 1
    by_work = [sum(round(unit * work[k]) for k in chunk.layers) + round(head) * chunk.head for chunk in chunks]
    by_traffic = [
        sum(round(unit * work[k] * slow[k]) for k in chunk.layers) + round(head * slow_head) * chunk.head
        for chunk in chunks
    ]
    by_launches = [STEPS * len(chunk.layers) for chunk in chunks]
    longest, ahead, prepares_s = 0.0, context.framework.passes_ahead, context.framework.host_microbatch_s
    for nominal, backward, once in (
        (by_work, 2, 0),
        (by_work, 2, STEPS),
        (by_work, 3, STEPS / 8),
        (by_traffic, 1.75, STEPS / 8),
        (by_launches, 2, STEPS),
    ):
        paths = [_played(strategy, groups, nominal, backward, once, ahead) for groups in (1, 2, 3)]
        turn = _turn(strategy, paths[2], nominal, backward, once)
        one, two, three, again = (
            sum(chunks[chunk].backward_s if back else chunks[chunk].forward_s for back, _, chunk in path)
            + prepares_s * sum(_prepared(strategy, path, place) for place in range(len(path)))
            for path in (*paths, turn)
        )
        groups = microbatches / strategy.pp
        if groups < 2:
            seconds = one + (groups - 1) * (two - one)
        elif groups < 3:
            seconds = two + (groups - 2) * (three - two)
        else:
            seconds = three + (groups - 3) * again
        longest = max(longest, seconds)
    return longest - prepares_s * microbatches


def _prepared(strategy: Strategy, path: list[Pass], place: int) -> bool:
    """Whether a pass begins when the host has prepared its microbatch, since the device's pass before ended last."""
    back, _, chunk = path[place]
    before = path[place + 1][2] if place + 1 < len(path) else 0
    return not back and chunk < strategy.pp and before % strategy.pp == chunk


def _played(strategy: Strategy, groups: int, nominal: list[int], backward: float, once: float, more: int) -> list[Pass]:
    """Play Megatron-LM's order; return the longest path by nominal lengths, from its end to its start."""
    pp, vpp = strategy.pp, strategy.vpp
    total = groups * pp * vpp
    done: dict[Pass, float] = {}
    behind: dict[Pass, Pass | None] = {}
    free: list[Pass | None] = [None] * pp
    place = [0] * pp
    orders = []
    for device in range(pp):
        ahead = min(2 * (pp - 1 - device) + (vpp - 1) * pp + more, total)
        order = [(False, turn) for turn in range(ahead)]
        for turn in range(total):
            order += ([(False, turn + ahead)] if turn + ahead < total else []) + [(True, turn)]
        orders.append(order)
    while min(place) < 2 * total:
        for device in range(pp):
            while place[device] < 2 * total:
                back, turn = orders[device][place[device]]
                group, inside = divmod(turn, pp * vpp)
                microbatch, group = group * pp + inside % pp, inside // pp
                chunk = (vpp - 1 - group if back else group) * pp + device
                if back:
                    need = (True, microbatch, chunk + 1) if chunk + 1 < pp * vpp else (False, microbatch, chunk)
                else:
                    need = (False, microbatch, chunk - 1)
                first = not back and chunk == 0
                if not first and need not in done:
                    break
                own = done.get(free[device], 0) if free[device] else 0
                own += once * (not back and chunk < pp)
                other = 0 if first else done[need]
                this = (back, microbatch, chunk)
                behind[this] = free[device] if own >= other else need
                done[this] = max(own, other) + nominal[chunk] * (backward if back else 1)
                free[device] = this
                place[device] += 1
    at: Pass | None = max(done, key=lambda one: done[one])
    path = []
    while at is not None:
        path.append(at)
        at = behind[at]
    return path


def _turn(strategy: Strategy, path: list[Pass], nominal: list[int], backward: float, once: float) -> list[Pass]:
    """The longest part of a path between the same pass of two groups; a device's own passes where there is none."""
    pp, longest, most = strategy.pp, [], 0.0
    for start, (back, microbatch, chunk) in enumerate(path):
        earlier = (back, microbatch - pp, chunk)
        if earlier in path:
            part = path[start : path.index(earlier)]
            length = sum(nominal[held] * (backward if gradient else 1) for gradient, _, held in part)
            length += once * sum(_prepared(strategy, path, place) for place in range(start, path.index(earlier)))
            if length > most:
                longest, most = part, length
    if longest:
        return longest
    busiest = max(range(pp), key=lambda device: sum(nominal[device::pp]))
    chunks = range(busiest, len(nominal), pp)
    return [(back, m, chunk) for back in (True, False) for chunk in reversed(chunks) for m in reversed(range(pp))]
