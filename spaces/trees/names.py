"""Names of layers and devices in the nodes of a tree: numbers, ranges and patterns."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import quoted
from forerun.spaces.models.model import Layer, Model
from forerun.spaces.trees.values import Node
from forerun.spaces.units import whole_number

_RANGE = re.compile(r"([0-9]{1,18})\s*(?:-|\.\.)\s*([0-9]{1,18})")
MOST_DEVICES = 1 << 20


def model_layers(model: Model) -> tuple[str, ...]:
    """Return the names of a transformer's layers in execution order: "embedding", "0", "1", ..., "head"."""
    return ("embedding", *map(str, range(model.layer_count)), "head")


def layer_at(model: Model, number: int) -> Layer:
    """Return the layer with a number, counted from 0."""
    for layer in model.layers:
        number -= layer.count
        if number < 0:
            return layer
    raise RequestError(f"there is no such layer in {model.name}; it has {model.layer_count}")


def matching_layers(specs: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the layers among ``names`` that match some words, in the order of ``names``.

    >>> matching_layers(["embedding", "0-1"], ["embedding", "0", "1", "2", "head"])
    ('embedding', '0', '1')
    >>> matching_layers(["conv1..pool1"], ["conv1", "relu1", "pool1", "linear1"])
    ('conv1', 'relu1', 'pool1')

    Raises
    ------
    RequestError
        A word matches no layer.
    """
    matches: set[str] = set()
    known = set(names)
    for spec in specs:
        text = spec.strip()
        if text in known:
            matches.add(text)
        elif match := _RANGE.fullmatch(text):
            low, high = int(match[1]), int(match[2])
            if low > high:
                raise RequestError(f"a range of layers grows, but got {text}; write {high}-{low}")
            missing = [str(n) for n in (low, high) if str(n) not in known]
            if missing:
                raise _no_such_layer(missing[0], names)
            matches |= {str(n) for n in range(low, high + 1)}
        elif ".." in text:
            matches |= set(_named_range(text, names))
        else:
            matched = [name for name in names if fnmatch.fnmatchcase(name, text)] if set(text) & set("*?[") else []
            if not matched:
                raise _no_such_layer(text, names)
            matches |= set(matched)
    return tuple(name for name in names if name in matches)


def without_blocks(node: Node, blocks: Mapping[str, Sequence[str]]) -> Node:
    """Return a tree whose nodes name layers in place of a model's ``blocks``.

    A range like ``layer1..layer3`` becomes one from the first layer of the first block to the last layer of the last.
    """
    if not blocks:
        return node
    children = tuple(without_blocks(child, blocks) for child in node.children)
    if node.layers is None:
        return replace(node, children=children)
    words: list[str] = []
    for word in node.layers:
        first, dots, last = (part.strip() for part in word.partition(".."))
        if word in blocks:
            words += blocks[word]
        elif dots and (first in blocks or last in blocks):
            words.append(f"{blocks[first][0] if first in blocks else first}..{blocks.get(last, (last,))[-1]}")
        else:
            words.append(word)
    return replace(node, layers=tuple(words), children=children)


def _named_range(text: str, names: Sequence[str]) -> Sequence[str]:
    """Return the layers from one name to another, both included."""
    first, last = (part.strip() for part in text.split("..", 1))
    for name in (first, last):
        if name not in names:
            raise _no_such_layer(name, names)
    low, high = names.index(first), names.index(last)
    if low > high:
        raise RequestError(f"a range of layers is in model order, but {last} is before {first} in {text}")
    return names[low : high + 1]


def _no_such_layer(name: str, names: Sequence[str]) -> RequestError:
    numbers = [int(known) for known in names if known.isdigit()]
    if name.isdigit() and numbers:
        return RequestError(f"there is no layer {name}; the model has layers {min(numbers)} to {max(numbers)}")
    return unknown("layer", name, names)


def device_numbers(specs: Iterable[str]) -> tuple[int, ...]:
    """Return the device numbers of words like "0-7" or "12", in order.

    >>> device_numbers(["0-3", "8"])
    (0, 1, 2, 3, 8)

    Raises
    ------
    RequestError
        A word is not a number or range, or a device is duplicate.
    """
    numbers: list[int] = []
    for spec in specs:
        text = spec.strip()
        match = _RANGE.fullmatch(text)
        low, high = map(whole_number, match.groups() if match else (text, text))
        if low is None or high is None:
            raise RequestError(f"devices are numbers or ranges like 0-7, but got {quoted(text)}")
        if low > high or high >= MOST_DEVICES:
            raise RequestError(f"a range of devices grows and ends below {MOST_DEVICES}, but got {quoted(text)}")
        numbers += range(low, high + 1)
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise RequestError(f"device {twice} is named twice")
    return tuple(numbers)


def layers_text(layers: Sequence[str]) -> str:
    """Return layer names with runs of numbers joined.

    >>> layers_text(["embedding", "0", "1", "2"])
    'embedding, 0-2'
    """
    texts: list[str] = []
    for numbered, run in groupby(layers, str.isdigit):
        members = list(run)
        texts += [ranges_text([int(layer) for layer in members])] if numbered else members
    return ", ".join(texts)


def ranges_text(numbers: Sequence[int]) -> str:
    """Return numbers as ranges, with runs of neighbours joined.

    >>> ranges_text([0, 1, 2, 3, 8])
    '0-3, 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)
