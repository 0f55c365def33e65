"""Streams whose tasks slow down while others are busy."""


class Slowed:
    """A stream whose tasks slow down while others are busy.

    The stream has the task under way, its remaining seconds at full speed, and the number of busy streams that slow it.
    A task on several such streams is timed on the first of them, the ``lead`` of the others.
    """

    __slots__ = ("busy", "due_s", "lead", "left_s", "members", "rate", "since_s", "slow_rate", "task")

    def __init__(self, factor: float) -> None:
        self.slow_rate = 1 / factor
        self.task = -1
        self.lead: Slowed | None = None
        self.members: list[Slowed] = []
        self.left_s = self.since_s = self.due_s = 0.0
        self.rate = 1.0
        self.busy = 0
