"""Configuration formats of training frameworks: a launch out as files, a user's files in as a strategy."""

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
