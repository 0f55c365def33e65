"""Assembly of pages with a script: policy, data of the script, sections."""

import base64
import hashlib
import json
from collections.abc import Mapping
from string import Template

from forerun.search.figures.markup import Safe, escape, tag
from forerun.search.figures.still_page import page_style
from forerun.spaces.documents.package_data import package_text
from forerun.spaces.plain import plain

Part = tuple[str, str, Safe]
"""A section of a page: name, text of its link, content."""


def scripted_page(
    *, title: str, header: Safe, parts: list[Part], data: Mapping[str, object], script: str, version: str
) -> str:
    """Return a self-contained page with styles, data and script.

    Its Content-Security-Policy forbids every request and every other script.

    ``data``: input of the script, by element id; ``script``: file in ``assets``; ``version``: version of forerun.
    """
    code = asset(script)
    return Template(asset("page.html")).substitute(
        policy=_policy(code),
        title=escape(f"{title} · forerun"),
        style=page_style(),
        header=header,
        links=tag("ul", *(tag("li", tag("a", link, href=f"#{name}")) for name, link, _ in parts)),
        sections="\n".join(text for _, _, text in parts),
        data="\n".join(_data(name, value) for name, value in data.items()),
        script=code,
        version=escape(version),
    )


def _policy(script: str) -> str:
    """Return a policy that lets the browser run this script and load nothing (W3C CSP level 3)."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(name: str, value: object) -> str:
    """Return a value as a JSON script element, with escaped end tags."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def asset(name: str) -> str:
    """Return the text of a file in ``assets``."""
    return package_text("forerun.search.report", "assets", name)


def part(name: str, link: str, title: str, content: Safe | None, hint: str = "") -> Part | None:
    """Return a section below a heading, with a ``hint`` first; None without content."""
    if content is None:
        return None
    paragraph = tag("p", hint, class_="hint") if hint else None
    text = tag(
        "section", tag("h2", title, id=f"{name}-title"), paragraph, content, id=name, aria_labelledby=f"{name}-title"
    )
    return name, link, text
