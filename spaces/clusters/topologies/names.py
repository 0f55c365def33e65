"""Catalogued devices by PCI number or product name."""

from functools import cache
from typing import Any

from forerun.spaces.documents.package_data import package_yaml

_NVIDIA = 0x10DE


@cache
def _table() -> dict[str, Any]:
    """Return ``data/products.yaml``."""
    return dict(package_yaml("forerun.spaces.clusters", "data", "products.yaml"))


def device_of_pci(vendor: int, number: int) -> str | None:
    """Return the catalogued device of a PCI vendor and device number, None if there is none.

    >>> device_of_pci(0x10DE, 0x2330)
    'h100-sxm'
    """
    return _table()["pci"].get(number) if vendor == _NVIDIA else None


def device_of_product(name: str) -> str | None:
    """Return the catalogued device of a product name, None if there is none.

    >>> device_of_product("NVIDIA A100-SXM4-80GB")
    'a100-sxm4-80'
    """
    text = name.lower()
    for *parts, device in _table()["products"]:
        if all(part in text for part in parts):
            return device or None
    return "t4" if text.split()[-1:] == ["t4"] else None
