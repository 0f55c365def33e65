"""Handlers of signals that survive the start of a library which has some of its own."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end a program."""


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Put handlers back that a library replaces within; where one of its own ends the program, ours is called."""
    numbers = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    except SystemExit:
        ours = before[signal.SIGTERM]
        if callable(ours):
            ours(signal.SIGTERM, None)
        raise
    finally:
        for number, handler in before.items():
            with suppress(ValueError):  # not in the main thread, where libraries replace none either
                if handler is not None:
                    signal.signal(number, handler)
