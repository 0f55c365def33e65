"""Interruption of a search by Ctrl-C, SIGTERM or SIGHUP, with the results so far as its answer."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stopped(KeyboardInterrupt):
    """Request to end the program; ``exit_code`` is 128 plus the number of the signal."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class EndedEarly(Stopped):
    """Early end of a search, with the results so far in ``found``: a piece of a space, later its leaderboard.

    The ``cause`` is a signal, or the loss of the workers.
    """

    def __init__(self, found: Any, cause: BaseException) -> None:
        super().__init__()
        self.found = found
        self.args = cause.args
        self.exit_code = getattr(cause, "exit_code", self.exit_code)


class Signals:
    """``last``: the signal that requested the end of the program; None without one."""

    last: int | None = None


@contextmanager
def signals_as_stops() -> Iterator[Signals]:
    """Raise ``Stopped`` on SIGTERM or SIGHUP, so that all resources are closed, as after Ctrl-C.

    C libraries turn any signal into Ctrl-C; the yielded object has the original signal.
    """
    signals = Signals()

    def stop(number: int, _: FrameType | None) -> None:
        signals.last = number
        raise Stopped(number)

    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        try:
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, stop)
        except ValueError:  # not in the main thread
            break
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
