"""The units that a node of a tree configures: modules of layers, and layers without modules."""

from collections.abc import Sequence

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.strategies import Recompute
from forerun.spaces.trees.names import matching_layers
from forerun.spaces.trees.values import Node, TreeError

Unit = tuple[str, str]
"""A layer's name and one of its modules ("" for none)."""
MOST_LAYERS = 6
"""Layers that a text names."""


def units_of(layers: Sequence[str], modules: Sequence[str]) -> tuple[Unit, ...]:
    """Return the units of a model in execution order; layers with number names consist of ``modules``.

    >>> units_of(["embedding", "0"], ["attention", "mlp"])
    (('embedding', ''), ('0', 'attention'), ('0', 'mlp'))
    """
    return tuple((layer, module) for layer in layers for module in (layer.isdigit() and modules) or ("",))


def own_units(node: Node, allowed: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units among ``allowed`` that a node names.

    Raises
    ------
    TreeError
        It names an unknown layer or module; the error has the path of the node.
    """
    units = tuple(allowed)
    if node.layers is not None:
        try:
            named = set(matching_layers(node.layers, tuple(dict.fromkeys(layer for layer, _ in allowed))))
        except RequestError as error:
            raise TreeError((*node.place, "layers"), str(error)) from None
        units = tuple(unit for unit in allowed if unit[0] in named)
    return units if node.modules is None else _with_modules(node, units)


def _with_modules(node: Node, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Return the units of the modules that a node names."""
    place = (*node.place, "modules")
    known = tuple(dict.fromkeys(module for _, module in units if module))
    if not known:
        raise TreeError(place, f"{units_text(units)}: no modules there; they are parts of transformer layers, like 0-3")
    for name in node.modules or ():
        if name in ("norm", "norms", "residual"):
            raise TreeError(place, f"norms belong to the module whose input they make; use {' or '.join(known)}")
        if name not in known:
            raise TreeError(place, str(unknown("module", name, known)))
    complete = [layer for layer, module in units if not module]
    if node.layers is not None and complete:
        raise TreeError(
            (*node.place, "layers"), f"{complete[0]} has no modules; leave it out beside {', '.join(known)}"
        )
    _check_settings(node)
    return tuple(unit for unit in units if unit[1] in (node.modules or ()))


def _check_settings(node: Node) -> None:
    """Refuse settings that the modules of a node do not use."""
    if node.modules == ("attention",):
        for name in ("ep", "etp"):
            if getattr(node.compute, name) is not None:
                raise TreeError((*node.place, "compute", name), f"attention has no experts; name {name} at the mlp")
    if node.modules == ("mlp",) and node.schedule.recompute == Recompute.SELECTIVE:
        raise TreeError(
            (*node.place, "schedule", "recompute"),
            "selective recomputes the core of attention, which an mlp has not; use full or none",
        )


def unit_text(unit: Unit) -> str:
    """Return a unit's name.

    >>> unit_text(("3", "mlp")), unit_text(("head", ""))
    ('3.mlp', 'head')
    """
    return ".".join(part for part in unit if part)


def units_text(units: Sequence[Unit]) -> str:
    """Return the names of the first layers of some units, with the module where all units have the same one.

    >>> units_text([("0", "mlp"), ("1", "mlp")])
    'mlp of 0, 1'
    """
    layers = list(dict.fromkeys(layer for layer, _ in units))
    shown = ", ".join(layers[:MOST_LAYERS]) + (", …" if len(layers) > MOST_LAYERS else "")
    modules = {module for _, module in units}
    alone = len(modules) == 1 and "" not in modules
    return f"{modules.pop()} of {shown}" if alone else shown
