"""The core of mixers with a recurrence per channel: no matrix product, bound by memory and vector units."""

from forerun.spaces.models.parts import Scan, Width


def elementwise(*, channels: int, state: int, tensors: int) -> Scan:
    """Return the scan of ``channels`` independent recurrences with ``state`` elements each (a head is one channel).

    A fused kernel reads and writes ``tensors`` elements per channel and token and keeps the state on chip (Mamba, arXiv
    2312.00752, section 3.3.2); the backward pass recomputes the state.
    """
    return Scan(
        contractions=(),
        traffic=Width(count=channels, each=tensors + max(state // 8, 0)),
        state=Width(count=channels, each=state),
    )
