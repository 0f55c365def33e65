"""Texts of launch files from templates, which are files of ``data/templates``."""

import re

from forerun.spaces.documents.package_data import package_text

_PART = re.compile(r"^\{\{(\w+)\}\}\n|\{\{(\w+)\}\}", re.MULTILINE)
"""A part of a template; an empty part alone on a line is removed with its line."""


def filled(template: str, **parts: object) -> str:
    """Return the text of a template with its parts (``{{name}}``) filled in."""
    text = package_text("forerun.search.formats", "data", "templates", template)
    return _PART.sub(lambda match: _part(match, parts), text)


def _part(match: re.Match[str], parts: dict[str, object]) -> str:
    alone, inside = match.groups()
    value = str(parts[alone or inside])
    return f"{value}\n" if alone and value else value
