"""Configuration formats of training frameworks: export of launch files, import of strategies.

Names below are loaded when first used (PEP 562): a search needs only one of these formats to mark rows without a launch
file.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forerun.search.formats.contract import Files, Format, Imported, Launch, LaunchFile, Limit, Steps
    from forerun.search.formats.exporting import Export, export, load_launch
    from forerun.search.formats.importing import import_files, import_texts
    from forerun.search.formats.megatron_log import measured_steps
    from forerun.search.formats.table import FORMATS, format_named, recognised, writable

__all__ = [
    "FORMATS",
    "Export",
    "Files",
    "Format",
    "Imported",
    "Launch",
    "LaunchFile",
    "Limit",
    "Steps",
    "export",
    "format_named",
    "import_files",
    "import_texts",
    "load_launch",
    "measured_steps",
    "recognised",
    "writable",
]

_NAMES = {
    "contract": ("Files", "Format", "Imported", "Launch", "LaunchFile", "Limit", "Steps"),
    "exporting": ("Export", "export", "load_launch"),
    "importing": ("import_files", "import_texts"),
    "megatron_log": ("measured_steps",),
    "table": ("FORMATS", "format_named", "recognised", "writable"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
