"""Measured costs of fused operators, in place of estimates.

    fused:
      - {operators: [batch_norm1, relu1], forward: 120us, backward: 300us}
      - {operators: [conv1, batch_norm1], forward: 2.1ms, backward: 4.4ms}

Each entry names two operators that run one after the other and the time of both in one kernel. A pair is not fused
unless that is faster than two kernels.
"""

from dataclasses import replace
from pathlib import Path

from forerun.simulator.improve import Op, RankStep
from forerun.spaces.documents import read_document, validate
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.units import parse_seconds


def with_fused_costs(step: RankStep, path: Path) -> RankStep:
    """Return the step with the fused costs of a YAML file.

    Raises:
        RequestError: the file cannot be read, names unknown operators or operators that do not follow each other, or
        has an invalid time.
    """
    from pydantic import BaseModel, ConfigDict

    class Entry(BaseModel):
        """One pair."""

        model_config = ConfigDict(extra="forbid")
        operators: tuple[str, str]
        forward: str | float
        backward: str | float

    class FusedDocument(BaseModel):
        """The whole file."""

        model_config = ConfigDict(extra="forbid")
        fused: list[Entry]

    entries = validate(read_document(path), FusedDocument).fused
    ops = list(step.ops)
    place = {op.name: number for number, op in enumerate(ops)}
    for entry in entries:
        for name in entry.operators:
            if name not in place:
                raise unknown(f"operator of {step.name}", name, place)
        first, second = (place[name] for name in entry.operators)
        if second != first + 1:
            raise RequestError(
                f"{path}: operators are fused with the one that runs just before, but {entry.operators[1]} follows "
                f"{ops[second - 1].name if second else 'nothing'} and not {entry.operators[0]}"
            )
        ops[second] = _with_cost(ops[first], ops[second], parse_seconds(entry.forward), parse_seconds(entry.backward))
    return replace(step, ops=tuple(ops))


def _with_cost(first: Op, second: Op, forward_s: float, backward_s: float) -> Op:
    """Return the second operator with the saving of the fusion, or nothing if both passes save nothing in sum."""
    saved = (first.forward_s + second.forward_s - forward_s, first.backward_s + second.backward_s - backward_s)
    if sum(saved) <= 0:
        saved = (0.0, 0.0)
    # If one direction saves and the other loses, the sum counts in the larger one.
    if min(saved) < 0:
        saved = (sum(saved), 0.0) if saved[0] > 0 else (0.0, sum(saved))
    return replace(second, fused_forward_s=saved[0], fused_backward_s=saved[1])
