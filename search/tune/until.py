"""Times of day and dates at which a tuning must end."""

from datetime import datetime, timedelta

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted


def parse_until(text: str, now: datetime | None = None) -> float:
    """Return a time in seconds since 1970; a time of day means its next occurrence.

    >>> base = datetime(2026, 11, 26, 22, 0)
    >>> datetime.fromtimestamp(parse_until("07:00", base))
    datetime.datetime(2026, 11, 27, 7, 0)

    Raises
    ------
    RequestError
        The text is not a time, or the time is past.
    """
    now = datetime.now() if now is None else now
    try:
        if "T" in text or "-" in text:
            at = datetime.fromisoformat(text)
        else:
            at = datetime.combine(now.date(), datetime.strptime(text, "%H:%M").time())
            at += timedelta(days=int(at <= now))
    except ValueError:
        raise RequestError(f"--until is written like 07:00 or 2026-12-01T07:00, but got {quoted(text)}") from None
    if at.timestamp() <= now.timestamp():
        raise RequestError(f"--until {text} is past")
    return at.timestamp()
