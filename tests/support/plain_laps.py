"""Slow and plain: the longest path through an interleaved schedule by nominal times, and what it takes."""

from dataclasses import dataclass

from forerun.simulator.lap_paths import STEPS
from forerun.spaces.models.flops import layer_forward_flops
from forerun.spaces.strategies import Context, Strategy


@dataclass(kw_only=True)
class PlainChunk:
    """A virtual stage: its layers (numbers of the model's entries) and the seconds of a microbatch."""

    layers: list[int]
    head: bool
    forward_s: float
    backward_s: float


def lap_path_s(context: Context, strategy: Strategy, microbatches: float, chunks: list[PlainChunk]) -> float:
    """Seconds of the longest of the nominal paths: by work, by work with recomputation, by launches."""
    model, seq_len = context.model, context.workload.seq_len
    work = [layer_forward_flops(layer, model.hidden, seq_len) for layer in model.layers]
    unit = STEPS / max(work)
    head = round(unit * 2.0 * seq_len * model.vocab * model.hidden)
    by_work = [sum(round(unit * work[kind]) for kind in chunk.layers) + head * chunk.head for chunk in chunks]
    by_launches = [len(chunk.layers) for chunk in chunks]
    longest = 0.0
    for nominal, backward in ((by_work, 2), (by_work, 3), (by_launches, 2)):
        one, two, three = (_played(strategy, groups, chunks, nominal, backward) for groups in (1, 2, 3))
        groups = microbatches / strategy.pp
        seconds = one + (groups - 1) * (two - one) if groups < 2 else two + (groups - 2) * (three - two)
        longest = max(longest, seconds)
    return longest


def _played(strategy: Strategy, groups: int, chunks: list[PlainChunk], nominal: list[int], backward: int) -> float:
    """Play Megatron-LM's order; every pass knows the nominal and the real length of the path that it waits for."""
    pp, vpp = strategy.pp, strategy.vpp
    total = groups * pp * vpp
    done: dict[tuple[bool, int, int], tuple[int, float]] = {}
    free, place = [(0, 0.0)] * pp, [0] * pp
    orders = []
    for device in range(pp):
        ahead = min(2 * (pp - 1 - device) + (vpp - 1) * pp, total)
        order = [(False, turn) for turn in range(ahead)]
        for turn in range(total):
            order += ([(False, turn + ahead)] if turn + ahead < total else []) + [(True, turn)]
        orders.append(order)
    while min(place) < 2 * total:
        for device in range(pp):
            while place[device] < 2 * total:
                back, turn = orders[device][place[device]]
                group, inside = divmod(turn, pp * vpp)
                microbatch, lap = group * pp + inside % pp, inside // pp
                chunk = (vpp - 1 - lap if back else lap) * pp + device
                if back:
                    need = (True, microbatch, chunk + 1) if chunk + 1 < pp * vpp else (False, microbatch, chunk)
                else:
                    need = (False, microbatch, chunk - 1)
                first = not back and chunk == 0
                if not first and need not in done:
                    break
                other = (0, 0.0) if first else done[need]
                start = free[device] if free[device][0] >= other[0] else other
                held = chunks[chunk]
                steps = nominal[chunk] * (backward if back else 1)
                free[device] = start[0] + steps, start[1] + (held.backward_s if back else held.forward_s)
                done[back, microbatch, chunk] = free[device]
                place[device] += 1
    return max(done.values(), key=lambda end: end[0])[1]
