"""Workload of a training run: batch, sequence, precision, length."""

from dataclasses import dataclass

from forerun.spaces.errors import RequestError

PRECISIONS = ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "fp4", "nvfp4")

LARGEST_COUNT, LARGEST_IMBALANCE, LARGEST_TOKENS = 10**12, 10_000, 1e30
"""Limits of sequences per step and tokens per sequence, of expert imbalance, and of a training's tokens."""


def check_precision(precision: str) -> None:
    """Refuse an unknown precision.

    Raises:
        RequestError: the name is unknown; the message lists the known ones.
    """
    if precision not in PRECISIONS:
        raise RequestError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training step: ``global_batch`` sequences of ``seq_len`` tokens at ``precision``.

    ``moe_imbalance``: tokens of the busiest expert-parallel rank over the mean (1.0: balanced, as assumed by published
    figures).
    ``document_tokens``: tokens of the packed documents of a sequence, which do not attend to each other (None: one
    document); the mean is weighted by tokens, so that it gives the cost of attention to all documents.
    ``tokens``: length of the whole training in tokens, None if not given.
    """

    global_batch: int
    seq_len: int
    precision: str = "bf16"
    tokens: float | None = None
    moe_imbalance: float = 1.0
    document_tokens: float | None = None

    def __post_init__(self) -> None:
        for name in ("global_batch", "seq_len"):
            if not 1 <= getattr(self, name) <= LARGEST_COUNT:
                raise RequestError(
                    f"{name} must be at least 1 and at most {LARGEST_COUNT:,}, but got {getattr(self, name)}"
                )
        check_precision(self.precision)
        if not 1 <= self.moe_imbalance <= LARGEST_IMBALANCE:
            raise RequestError(
                f"moe_imbalance must be at least 1.0 (balanced) and at most {LARGEST_IMBALANCE:,}, "
                f"but got {self.moe_imbalance}"
            )
        if self.document_tokens is not None and not 1 <= self.document_tokens <= LARGEST_COUNT:
            raise RequestError(
                f"document_tokens must be at least 1 and at most {LARGEST_COUNT:,}, but got {self.document_tokens}"
            )
        if self.tokens is not None and not 0 < self.tokens <= LARGEST_TOKENS:
            raise RequestError(f"tokens must be above 0 and at most {LARGEST_TOKENS:g}, but got {self.tokens}")

    @property
    def tokens_per_step(self) -> int:
        """Tokens consumed by one optimizer step."""
        return self.global_batch * self.seq_len
