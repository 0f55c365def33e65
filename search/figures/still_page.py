"""Pages without a script, whose Content-Security-Policy forbids running and loading anything."""

from collections.abc import Sequence

from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.files.release import VERSION
from forerun.spaces.documents.package_data import package_text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def still_page(*, title: str, subtitle: str, content: Sequence[Safe]) -> str:
    """Return a page in the report's style; ``content`` is the part below its heading."""
    head = joined(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name_="color-scheme", content="light dark"),
            tag("title", f"{title} · forerun"),
            tag("link", rel="icon", href="data:,"),
            tag("style", page_style()),
        ]
    )
    header = tag("header", tag("p", "forerun", class_="brand"), tag("h1", title), tag("p", subtitle, class_="asked"))
    made = tag("p", f"forerun {VERSION}", class_="hint")
    body = tag("body", header, tag("main", *content, made))
    return "<!doctype html>\n" + tag("html", tag("head", head), body, lang="en") + "\n"


def page_style() -> Safe:
    """Return the style sheet of all pages."""
    return Safe(package_text("forerun.search.figures", "assets", "page.css"))


def section(name: str, title: str, *content: Safe) -> Safe:
    """Return a part of a page below a heading."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *content, id=name, aria_labelledby=f"{name}-title")
