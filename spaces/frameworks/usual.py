"""Default framework for a model on the devices of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.spaces.frameworks.hardware import UNSTATED, DeviceKind

GENERIC = "generic"
"""The profile that runs everywhere and has no launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The usual frameworks on devices of a vendor."""

    decoders: str
    """For decoders over tokens."""
    encoders: str = GENERIC
    """For all other transformers: encoders, and decoders that attend to an encoder (text, images, sound)."""


USUAL: Mapping[str, Usual] = {
    "NVIDIA": Usual(decoders="megatron-lm", encoders="fsdp"),
    "AMD": Usual(decoders="megatron-lm", encoders="fsdp"),
    "Google": Usual(decoders="maxtext"),
    "Huawei": Usual(decoders="mindspeed", encoders="deepspeed"),
    "AWS": Usual(decoders="nxd"),
    "Intel": Usual(decoders="deepspeed", encoders="deepspeed"),
    UNSTATED: Usual(decoders="megatron-lm", encoders="fsdp"),
}
"""Usual frameworks by vendor: those of its guides, or else those with launch files for it."""


def usual_framework(kinds: Sequence[DeviceKind], *, decodes: bool = True) -> str:
    """Return the usual framework of a model that ``decodes`` tokens, or does not.

    The generic framework is returned where the cluster's kinds of devices have no common framework.

    >>> usual_framework([DeviceKind(device="tpu-v5p", vendor="Google", architecture="TPU v5p", link="torus")])
    'maxtext'
    """
    known = [USUAL.get(kind.vendor, Usual(decoders=GENERIC)) for kind in kinds]
    names = {one.decoders if decodes else one.encoders for one in known}
    return names.pop() if len(names) == 1 else GENERIC
