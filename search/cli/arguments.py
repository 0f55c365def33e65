"""The request from the flags of a training."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.escaping import quoted

if TYPE_CHECKING:
    from forerun.search.request.request import Request
    from forerun.search.workers import Choice

TRANSFORMER_OPTIMIZERS = ("adam", "muon")
"""Optimizers of transformers, the default first."""


def switches_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the switches set by the user."""
    from forerun.spaces.frameworks import parse_switches
    from forerun.spaces.opgraph.profile import GRAPH_SWITCHES
    from forerun.spaces.opgraph.resolve import names_graph_model

    known = GRAPH_SWITCHES if args.model and names_graph_model(args.model) else None
    return parse_switches(args.with_switches, args.without_switches, known)


def request_of(args: argparse.Namespace, *, graphs: bool = False, **fields: Any) -> "Request":
    """Return the request of the shared flags with further ``fields``; ``graphs``: whether for operator graphs, too."""
    from forerun.search.request.quantities import batch_of
    from forerun.search.request.request import Request

    check_kind(args, graphs)
    switches = switches_of(args)
    filled = dict(args.filled)
    if "framework" in filled and args.seq_len is None:  # a default framework trains transformers
        args.framework = None
        del filled["framework"]
    if args.seq_len is not None:
        switches |= _optimizer_switch(args.optimizer, switches)
    return Request(
        model=args.model,
        cluster=args.cluster,
        global_batch=batch_of(args.global_batch, args.seq_len),
        seq_len=args.seq_len,
        gpus=args.gpus,
        precision=args.precision,
        framework=args.framework,
        switches=switches,
        tokens=args.tokens,
        inference=getattr(args, "inference", False),
        moe_imbalance=args.moe_imbalance,
        lora=args.lora,
        freeze=args.freeze,
        documents=args.documents,
        usd_per_gpu_hour=args.usd_per_gpu_hour,
        profile=getattr(args, "profile", None),
        calibration=getattr(args, "calibration", None),
        ignored_config_fields=tuple(args.ignore_config_field),
        seconds_per_sample=getattr(args, "seconds_per_sample", None),
        optimizer=None if args.seq_len is not None else args.optimizer,
        allow_generic=getattr(args, "allow_generic", False),
        shapes=tuple(getattr(args, "shape", ())),
        user_defaults=tuple(text for text in filled.values() if text),
        **fields,
    )


def _optimizer_switch(optimizer: str | None, switches: Mapping[str, str]) -> dict[str, str]:
    """Name the switch of a transformer's framework that ``--optimizer`` sets; none for the default."""
    if optimizer is None:
        return {}
    if optimizer not in TRANSFORMER_OPTIMIZERS:
        known = " or ".join(TRANSFORMER_OPTIMIZERS)
        raise RequestError(f"--optimizer {optimizer} is for operator graphs; transformers train with {known}")
    if switches.get("optimizer", optimizer) != optimizer:
        raise RequestError(f"--optimizer {optimizer} and --with optimizer={switches['optimizer']}: drop one of them")
    return {} if optimizer == TRANSFORMER_OPTIMIZERS[0] else {"optimizer": optimizer}


def check_kind(args: argparse.Namespace, graphs: bool) -> None:
    """Refuse missing or meaningless flags for the kind of model; ``graphs``: see ``request_of``."""
    from forerun.spaces.opgraph.resolve import names_graph_model

    if names_graph_model(args.model):
        if not graphs:
            raise RequestError(
                f"{args.model} is an operator graph; search, sweep, simulate, explain, limits, scale and improve take "
                "such models"
            )
        refuse_unserved(args, Answer.GRAPH, f"is for transformers, and {args.model} is an operator graph; drop it")
        return
    if args.seq_len is None:
        check_transformer(args)
        raise RequestError("--seq-len is missing; see `forerun search --help`")
    refuse_unserved(args, Answer.TRANSFORMER, f"is for operator graphs, and {args.model} is not")


def check_transformer(args: argparse.Namespace) -> None:
    """Refuse an unknown transformer, which is a larger mistake than a missing flag."""
    from forerun.spaces.models import resolve_model
    from forerun.spaces.opgraph.catalogue import graph_model_names

    if near := nearest(args.model, graph_model_names()):
        raise RequestError(f"unknown model {quoted(args.model)}; operator graphs like it: {', '.join(near)}")
    resolve_model(args.model, ignore=frozenset(args.ignore_config_field))


def single_request(args: argparse.Namespace, *, graphs: bool = False) -> "Request":
    """Return the request of a verb with given strategies and no ranking; ``graphs``: see ``request_of``."""
    from forerun.search.request.request import DEFAULT_OBJECTIVE, DEFAULT_TOP

    return request_of(args, graphs=graphs, objective=DEFAULT_OBJECTIVE, top=DEFAULT_TOP)


def workers_of(args: argparse.Namespace) -> "Choice":
    """Return the choice of workers from the flags."""
    from forerun.search.workers import Choice

    return Choice(kind=args.workers, count=args.worker_count, address=args.address)
