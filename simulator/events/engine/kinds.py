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
"""What tasks do; the first four are numbered as ``Pass``."""
SEND, GATHER, REDUCE, TIED, OPTIMIZER, HOST, COPY, RECOMPUTE, EXCHANGE = range(4, 13)
STREAMS = ("compute", "feature", "gradient", "to host", "from host")
"""Streams of every pipeline rank, in this order: stream ``len(STREAMS) * device + place``, device ``replica * pp +
stage``. Copies to the host and back run both ways at once."""
