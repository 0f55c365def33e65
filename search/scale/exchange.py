"""Check of settings of a gradient exchange against the requested exchange."""

from collections.abc import Mapping
from typing import Any

from forerun.spaces.errors import RequestError


def check_used(exchange: str, given: Mapping[str, Any], server_bytes_per_s: float | None) -> None:
    """Check that all given settings belong to the requested exchange.

    Raises:
        RequestError: servers are described without servers, or messages of an all-reduce without all-reduce.
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
