"""Signal handlers that survive the start of a library with its own handlers."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that end a program."""


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Restore signal handlers that a library replaces in the block, and call them where its own end the program."""
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
            with suppress(ValueError):  # not in the main thread, so libraries replace no handlers
                if handler is not None:
                    signal.signal(number, handler)
