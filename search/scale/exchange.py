"""Settings of an exchange of gradients that belong to the one that is asked for."""

from collections.abc import Mapping
from typing import Any

from forerun.spaces.errors import RequestError


def check_used(exchange: str, given: Mapping[str, Any], server_bytes_per_s: float | None) -> None:
    """Check that what is said of an exchange is of the one that is asked for.

    Raises:
        RequestError: servers are described and there are none, or the messages of an all-reduce and there is none.
    """
    if exchange != "all-reduce":
        if "bucket_bytes" in given:
            raise RequestError("--bucket is for all-reduces; servers take the gradient of each layer by itself")
        return
    usual = {"policy": "multiplexed", "placement": "even", "barrier": "step"}
    settings = [name for name, value in usual.items() if given.get(name, value) != value]
    settings += ["window"] * ("window_bytes" in given)
    settings += ["bandwidth"] * (server_bytes_per_s is not None)
    if settings:
        raise RequestError(
            f"--servers {','.join(settings)}: an all-reduce has no servers; add --mode sync-ps or async-ps"
        )
