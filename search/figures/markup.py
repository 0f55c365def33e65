"""HTML values; all other text is escaped, so that no name of a user becomes markup."""

import html
from collections.abc import Iterable, Sequence

from forerun.spaces.escaping import visible

VOID = frozenset({"br", "input", "meta", "link"})
"""Elements used here that have no end tag (HTML standard, section 13.1.2)."""


class Safe(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | float | None


def escape(value: object) -> Safe:
    """Return a value as HTML text; ``Safe`` is unchanged."""
    return value if isinstance(value, Safe) else Safe(html.escape(visible(str(value)), quote=True))


def joined(children: Iterable[Child]) -> Safe:
    """Return children one after the other; None is nothing."""
    return Safe("".join(escape(child) for child in children if child is not None))


def tag(name: str, *children: Child, **attributes: object) -> Safe:
    """Return an element.

    Attribute names lose one trailing underscore (``class_``) and their other underscores become hyphens; None and False
    omit an attribute, True gives an attribute without a value.

    >>> tag("td", "a < b", class_="number", data_value=3)
    '<td class="number" data-value="3">a &lt; b</td>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.removesuffix("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{escape(value)}"')
    parts.append(">")
    if name not in VOID:
        parts += [joined(children), f"</{name}>"]
    return Safe("".join(parts))


def column(name: str) -> Safe:
    """Return the head of a column of numbers."""
    return tag("th", name, scope="col", class_="n")


def numbers_line(name: Child, *cells: Child) -> Safe:
    """Return a row of a table: its head, and cells of numbers."""
    return tag("tr", tag("th", name, scope="row"), *(tag("td", text, class_="n") for text in cells))


def table(heads: Sequence[str], lines: Iterable[Safe], *, caption: str | None = None, **attributes: object) -> Safe:
    """Return a table of ``lines``, rows of cells; plain heads are heads of text columns."""
    cells = [head if isinstance(head, Safe) else tag("th", head, scope="col") for head in heads]
    title = None if caption is None else tag("caption", tag("span", caption))
    return tag("table", title, tag("thead", tag("tr", *cells)), tag("tbody", *lines), **attributes)


def scrolled(content: Safe, name: str, *, kind: str = "scroll") -> Safe:
    """Return content in a region that scrolls by itself."""
    return tag("div", content, class_=kind, role="region", aria_label=name, tabindex="0")
