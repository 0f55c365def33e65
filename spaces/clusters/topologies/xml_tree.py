"""Restricted XML reader: no document types, no entities, limited in size, depth and number of elements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from forerun.spaces.errors import RequestError

MAX_DEPTH = 64
MAX_ELEMENTS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element; ``line``: line of its start tag."""

    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def walk(self) -> Iterator["Element"]:
        """Yield the element and all elements below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse_xml(text: str, *, source: str) -> Element:
    """Return the root element of ``text``; text between tags is ignored.

    Raises
    ------
    RequestError
        It is not well formed (with line), has a document type or an entity, or too many or too deep elements.
    """
    parser = expat.ParserCreate()
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    top = Element(tag="", attributes={}, line=0)
    path = [top]
    count = 0

    def where() -> str:
        return f"{source}, line {parser.CurrentLineNumber}"

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS or len(path) > MAX_DEPTH:
            raise RequestError(
                f"{where()}: a topology has at most {MAX_ELEMENTS:,} elements in {MAX_DEPTH} levels; is it the right "
                "file?"
            )
        element = Element(tag=tag, attributes=attributes, line=parser.CurrentLineNumber)
        path[-1].children.append(element)
        path.append(element)

    def end(_: str) -> None:
        path.pop()

    def doctype(*_: object) -> None:
        raise RequestError(f"{where()}: a topology has no document type and no entities; remove the <!DOCTYPE …>")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise RequestError(f"{source}, line {error.lineno}: not well-formed XML ({reason}); was it cut off?") from None
    (root,) = top.children
    return root
