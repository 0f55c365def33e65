"""Kinds of tasks of a step, and the streams that run them."""

KINDS = (
    "forward",
    "backward",
    "input gradient",
    "weight gradient",
    "send",
    "gather",
    "reduce",
    "tied",
    "optimizer",
    "host",
    "copy",
    "recompute",
    "exchange",
)
"""Kinds of tasks; the first four have the numbers of ``Pass``."""
SEND, GATHER, REDUCE, TIED, OPTIMIZER, HOST, COPY, RECOMPUTE, EXCHANGE = range(4, 13)
STREAMS = ("compute", "feature", "gradient", "to host", "from host")
"""Streams of every pipeline rank, in order. The number is ``len(STREAMS) * device + place``, with device ``replica * pp
+ stage``. Copies to and from the host run at the same time."""
