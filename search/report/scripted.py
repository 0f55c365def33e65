"""What pages with a script are put together from: their policy, data that a script reads, sections, files."""

import base64
import hashlib
import json

from forerun.search.figures.markup import Safe, tag
from forerun.spaces.documents.package_data import package_text

Part = tuple[str, str, Safe]
"""A section of a page: its name, the text of the link to it, itself."""


def policy(script: str) -> str:
    """Return a policy that lets the browser run this script and load nothing (W3C CSP level 3)."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def json_text(value: object) -> str:
    """Return JSON that can stand inside a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def asset(name: str) -> str:
    """Return a file that is part of a page."""
    return package_text("forerun.search.report", "assets", name)


def part(name: str, link: str, title: str, content: Safe | None, hint: str = "") -> Part | None:
    """Return a section below a heading, with a ``hint`` first; None without a content."""
    if content is None:
        return None
    told = tag("p", hint, class_="hint") if hint else None
    text = tag("section", tag("h2", title, id=f"{name}-title"), told, content, id=name, aria_labelledby=f"{name}-title")
    return name, link, text


def links_to(parts: list[Part]) -> Safe:
    """Return the links to the sections of a page."""
    return tag("ul", *(tag("li", tag("a", link, href=f"#{name}")) for name, link, _ in parts))
