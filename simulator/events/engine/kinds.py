"""Kinds of tasks of a step, how timelines show them, and the streams that run them."""

_KINDS = (
    ("forward", "F", "#4477aa"),
    ("backward", "B", "#66ccee"),
    ("input gradient", "b", "#66ccee"),
    ("weight gradient", "w", "#228833"),
    ("send", "s", "#ccbb44"),
    ("gather", "g", "#ee6677"),
    ("reduce", "r", "#aa3377"),
    ("tied", "t", "#aa3377"),
    ("optimizer", "o", "#222222"),
    ("host", "h", "#bbbbbb"),
    ("copy", "c", "#999933"),
    ("recompute", "R", "#117733"),
    ("exchange", "x", "#882255"),
)
"""Name, letter and colour; the first four have the numbers of ``Pass``. The colours are Paul Tol's bright scheme, which
colour-blind readers can distinguish (personal.sron.nl/~pault)."""
KINDS = tuple(name for name, _, _ in _KINDS)
LETTERS = tuple(letter for _, letter, _ in _KINDS)
COLOURS = tuple(colour for _, _, colour in _KINDS)
SEND, GATHER, REDUCE, TIED, OPTIMIZER, HOST, COPY, RECOMPUTE, EXCHANGE = range(4, 13)
STREAMS = ("compute", "feature", "gradient", "to host", "from host")
"""Streams of every pipeline rank, in order. The number is ``len(STREAMS) * device + place``, with device ``replica * pp
+ stage``. Copies to and from the host run at the same time."""
