"""The YAML form of a strategy tree.

schedule: {order: 1f1b, microbatches: 8, recompute: selective}
compute: {tp: 2}
memory: {zero: 1}
children:
  - {name: lower, layers: [embedding, 0-15], devices: 0-7}
  - name: upper
    layers: [16-31, head]
    devices: 8-15
    children:
      - {modules: mlp, compute: {tp: 4}}
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forerun.spaces.documents import Document, parse_document, read_document, validate
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import ALL_REPLICAS, Recompute, Schedule, parse_named
from forerun.spaces.trees.names import device_numbers
from forerun.spaces.trees.values import LAYOUTS, ZERO_TENSORS, Computation, KeyPath, Memory, Node, Timing, TreeError

Degree = Annotated[int, Field(ge=1, le=1 << 20)]
Words = str | int | list[str | int]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ComputeDocument(_Part):
    """``Computation``."""

    dp: Degree | None = None
    tp: Degree | None = None
    cp: Degree | None = None
    ep: Degree | None = None
    etp: Degree | None = None
    sp: bool | None = None
    cut: dict[str, Degree] | None = None
    deal: bool | None = None
    on: Words | None = None

    def build(self, place: KeyPath) -> Computation:
        """Return the value.

        Raises
        ------
        TreeError
            The devices are invalid.
        """
        settings = self.model_dump(exclude={"on"})
        return Computation(**settings, on=None if self.on is None else _devices(self.on, (*place, "on")))


class MemoryDocument(_Part):
    """``Memory``; ``zero``: for all three kinds of tensors, or a word each; ``shard``: replicas, or ``all``."""

    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    optimizer: Literal["replicated", "sharded"] | None = None
    gradients: Literal["replicated", "sharded"] | None = None
    parameters: Literal["replicated", "sharded"] | None = None
    shard: Degree | Literal["all"] | None = None
    host: list[Literal["activations", "optimizer", "parameters"]] | None = None
    output: dict[str, Degree] | None = None
    output_gradient: dict[str, Degree] | None = None
    input: dict[str, Degree] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.zero is not None and any(getattr(self, name) is not None for name in ZERO_TENSORS):
            raise ValueError("zero decides where optimizer, gradients and parameters are; give either it or them")
        return self

    def build(self) -> Memory:
        """Return the value."""
        host = None if self.host is None else frozenset(self.host)
        shard = ALL_REPLICAS if self.shard == "all" else self.shard
        layouts = {name: getattr(self, name) for name in LAYOUTS}
        if self.zero is not None:
            return replace(Memory.zero(self.zero), shard=shard, host=host, **layouts)
        words = {name: getattr(self, name) for name in ZERO_TENSORS}
        return Memory(
            shard=shard,
            host=host,
            **layouts,
            **{name: None if word is None else word == "sharded" for name, word in words.items()},
        )


class ScheduleDocument(_Part):
    """``Timing``."""

    order: str | None = None
    microbatches: Degree | None = None
    in_flight: Degree | Annotated[list[Degree], Field(min_length=1)] | None = None
    recompute: str | None = None

    def build(self, place: KeyPath) -> Timing:
        """Return the value.

        Raises
        ------
        TreeError
            The order does not exist, or the recompute is impossible.
        """
        flight = self.in_flight
        return Timing(
            order=None if self.order is None else Schedule(_named("schedule", self.order, (*place, "order"))),
            microbatches=self.microbatches,
            in_flight=None if flight is None else (flight,) if isinstance(flight, int) else tuple(flight),
            recompute=None
            if self.recompute is None
            else Recompute(_named("recompute", self.recompute, (*place, "recompute"))),
        )


def _named(axis: str, text: str, place: KeyPath) -> int:
    try:
        return parse_named(axis, text)
    except RequestError as error:
        raise TreeError(place, str(error)) from None


class NodeDocument(_Part):
    """``Node``."""

    name: str = ""
    layers: Words | None = None
    modules: Words | None = None
    devices: Words | None = None
    compute: ComputeDocument = ComputeDocument()
    memory: MemoryDocument = MemoryDocument()
    schedule: ScheduleDocument = ScheduleDocument()
    children: list["NodeDocument"] = []

    def build(self, place: KeyPath = ()) -> Node:
        """Return the value.

        Raises
        ------
        TreeError
            The devices are invalid, or as in ``ScheduleDocument.build``.
        """
        return Node(
            name=self.name,
            layers=None if self.layers is None else tuple(_words(self.layers)),
            modules=None if self.modules is None else tuple(_words(self.modules)),
            devices=_devices(self.devices, (*place, "devices")),
            compute=self.compute.build((*place, "compute")),
            memory=self.memory.build(),
            schedule=self.schedule.build((*place, "schedule")),
            children=tuple(child.build((*place, "children", n)) for n, child in enumerate(self.children)),
            place=place,
        )


def _devices(value: Words | None, place: KeyPath) -> tuple[int, ...]:
    try:
        return device_numbers(_words(value))
    except RequestError as error:
        raise TreeError(place, str(error)) from None


def _words(value: Words | None) -> list[str]:
    if value is None:
        return []
    words = value if isinstance(value, list) else [value]
    return [part for word in words for part in str(word).split(",") if part.strip()]


def read_tree(path: Path) -> tuple[Node, Document]:
    """Return the tree of a YAML or JSON file, and the file for later errors (``at_line``).

    Raises
    ------
    RequestError
        The file cannot be read, or is not a tree; the message has file, line and path of the node.
    """
    document = read_document(path)
    return _tree_of(document), document


def parse_tree(text: str, source: str = "tree.yaml") -> Node:
    """Return the tree of a text.

    Raises
    ------
    RequestError
        As for ``read_tree``.
    """
    return _tree_of(parse_document(text, source=source))


def _tree_of(document: Document) -> Node:
    built = validate(document, NodeDocument)
    try:
        return built.build()
    except TreeError as error:
        raise at_line(error, document) from None


def at_line(error: TreeError, document: Document) -> RequestError:
    """Return an error about a node with its file and line; an inherited setting has the line in the parent."""
    return RequestError(f"{document.where(_where_set(document.data, error.place))}: {error.law}")


def _where_set(data: Any, place: KeyPath) -> KeyPath:
    """Return the keys of the place where a setting of a node is written: at the node, or the nearest one above."""
    depth = 0
    while place[2 * depth : 2 * depth + 1] == ("children",) and len(place) > 2 * depth + 1:
        depth += 1
    setting = place[2 * depth :]
    for above in range(depth, -1, -1) if setting else ():
        value = data
        for key in (*place[: 2 * above], *setting):
            value = value.get(key) if isinstance(value, dict) else value[int(key)] if isinstance(value, list) else None
        if value is not None:
            return (*place[: 2 * above], *setting)
    return place
