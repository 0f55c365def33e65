"""Catalogued devices by PCI number or product name."""

from collections.abc import Mapping

# The PCI ID Repository (pci-ids.ucw.cz, 2023-04-11), and for later devices g_nv_name_released.h of NVIDIA's open kernel
# modules. A number is one product of any manufacturer.
_PCI: Mapping[int, str] = {
    0x102D: "k80",
    0x15F9: "p100-sxm2",
    0x1B02: "titan-xp",
    0x1B06: "gtx-1080-ti",
    0x1B38: "p40",
    0x1DB1: "v100-sxm2-16",
    0x1DF5: "v100-sxm2-16",
    0x1DB5: "v100-sxm2-32",
    0x1E02: "titan-rtx",
    0x1EB8: "t4",
    0x20B0: "a100-sxm4-40",
    0x20B2: "a100-sxm4-80",
    0x20B5: "a100-pcie-80",
    0x20F3: "a800-sxm4-80",
    0x2237: "a10g",
    0x2324: "h800-sxm",
    0x2329: "h20-sxm",
    0x2330: "h100-sxm",
    0x2331: "h100-pcie",
    0x2335: "h200-sxm",
    0x2684: "rtx4090",
    0x26B9: "l40s",
    0x2901: "b200-sxm",
}

# Words of product names (as printed by nvidia-smi), most specific first.
_WORDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gb300",), "gb300-nvl72"),
    (("gb200",), "gb200-nvl72"),
    (("gh200",), "gh200-96"),
    (("b300",), "b300-sxm"),
    (("b200",), "b200-sxm"),
    (("h200",), "h200-sxm"),
    (("h100", "pcie"), "h100-pcie"),
    (("h100", "hbm3"), "h100-sxm"),
    (("h100", "sxm"), "h100-sxm"),
    (("h800", "pcie"), ""),
    (("h800",), "h800-sxm"),
    (("h20",), "h20-sxm"),
    (("a100", "sxm", "80gb"), "a100-sxm4-80"),
    (("a100", "sxm", "40gb"), "a100-sxm4-40"),
    (("a100", "80gb", "pcie"), "a100-pcie-80"),
    (("a800", "sxm"), "a800-sxm4-80"),
    (("v100", "sxm2", "32gb"), "v100-sxm2-32"),
    (("v100", "sxm2", "16gb"), "v100-sxm2-16"),
    (("p100", "sxm2"), "p100-sxm2"),
    (("tesla", "p40"), "p40"),
    (("titan", "rtx"), "titan-rtx"),
    (("titan", "xp"), "titan-xp"),
    (("gtx", "1080", "ti"), "gtx-1080-ti"),
    (("tesla", "t4"), "t4"),
    (("a10g",), "a10g"),
    (("l40s",), "l40s"),
    (("rtx", "4090"), "rtx4090"),
    (("rtx", "pro", "6000"), "rtx-pro-6000"),
    (("k80",), "k80"),
)


def device_of_pci(vendor: int, number: int) -> str | None:
    """Return the catalogued device of a PCI vendor and device number, None if there is none.

    >>> device_of_pci(0x10DE, 0x2330)
    'h100-sxm'
    """
    return _PCI.get(number) if vendor == 0x10DE else None


def device_of_product(name: str) -> str | None:
    """Return the catalogued device of a product name, None if there is none.

    >>> device_of_product("NVIDIA A100-SXM4-80GB")
    'a100-sxm4-80'
    """
    text = name.lower()
    for words, device in _WORDS:
        if all(word in text for word in words):
            return device or None
    return "t4" if text.split()[-1:] == ["t4"] else None
