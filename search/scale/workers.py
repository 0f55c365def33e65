"""Numbers of workers, as users write them."""

from forerun.spaces.errors import RequestError

MOST_WORKERS = 4096


def worker_counts(text: str) -> list[int]:
    """Return the numbers of workers that ``8``, ``1,2,6`` or ``1..64`` (doubling, both ends) names.

    Raises:
        RequestError: not such a text, or a number out of range.
    """
    low, dots, high = text.partition("..")
    try:
        if dots:
            first, last = int(low), int(high)
            found = [first]
            while 0 < found[-1] * 2 < last:
                found.append(found[-1] * 2)
            found = [*found, last] if last > first else [first, last]
            if last < first:
                raise RequestError(f"a range of workers grows, but got {text}; write {last}..{first}")
        else:
            found = [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"workers are like 8, 1,2,6 or 1..64, but got {text!r}") from None
    for count in found:
        if not 1 <= count <= MOST_WORKERS:
            raise RequestError(f"workers are 1 to {MOST_WORKERS}, but got {count}")
    return sorted(set(found))
