"""Users' documents: restricted YAML, JSON or TOML, with errors that name the line.

A document is plain data: no tags, no aliases, no duplicate key, no control characters, finite numbers, limited in size,
depth and number of values, so that a hostile or mistaken file fails at once. Scalars follow the core schema of YAML 1.2
(https://yaml.org/spec/1.2.2, section 10.3.2): ``no`` is a text, ``1e9`` is a number. Keys are texts.
"""

from forerun.spaces.documents.document import MAX_VALUES, Document, parse_document, read_document
from forerun.spaces.documents.json_text import read_json, read_toml
from forerun.spaces.documents.schema import validate
from forerun.spaces.documents.values import MAX_DEPTH

__all__ = [
    "MAX_DEPTH",
    "MAX_VALUES",
    "Document",
    "parse_document",
    "read_document",
    "read_json",
    "read_toml",
    "validate",
]
