"""A search that is stopped by Ctrl-C, SIGTERM or SIGHUP: what it has found by then is its answer."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stopped(KeyboardInterrupt):
    """Somebody asked the program to end; ``exit_code`` is what shells expect of a signal (128 and its number)."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class EndedEarly(Stopped):
    """A search has ended early with what was ``found`` by then: the piece of a space, and later the leaderboard of it.
    The ``cause`` is a signal, or the loss of the workers."""

    def __init__(self, found: Any, cause: BaseException) -> None:
        super().__init__()
        self.found = found
        self.args = cause.args
        self.exit_code = getattr(cause, "exit_code", self.exit_code)


class Signals:
    """The signal that asked the program to end, ``last``; None: none has."""

    last: int | None = None


@contextmanager
def signals_as_stops() -> Iterator[Signals]:
    """End by ``Stopped`` where SIGTERM or SIGHUP comes, so that all that is open is closed, as after Ctrl-C.

    Libraries in C pass any signal on as Ctrl-C; what is yielded knows which it was.
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
