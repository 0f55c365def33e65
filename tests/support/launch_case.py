"""One launch file of a tool and what it says."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    """Files, what they are imported with, and what they say."""

    files: dict[str, str]
    format: str
    strategy: str
    batch: int | None
    seq_len: int | None
    precision: str
    gpus: int | None = None
    entry: str | None = None
    arguments: tuple[str, ...] = ()
