"""Flags that several verbs share, and the request they make."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.search.cli.answers import only
from forerun.search.cli.parser import Parser, batch, count, positive, some_workers, whole
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.escaping import quoted

if TYPE_CHECKING:
    from forerun.search.request.request import Request
    from forerun.search.workers import Choice


TRANSFORMER_OPTIMIZERS = ("adam", "muon")
"""Optimizers of transformers, the default first."""


def add_training(parser: Parser, *, batch_required: bool = True, learned: bool = True) -> None:
    """Add what is trained, on what; ``batch_required``: no file of the verb can state the global batch; ``learned``:
    what was measured of the machine may be named."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="catalogue name, YAML file, Hugging Face config.json, or a graph: .onnx, .pt2, .net",
    )
    group = parser.add_argument_group("training")
    group.add_argument(
        "--cluster",
        required=True,
        metavar="CLUSTER",
        help="catalogue name, YAML file, NCCL topology XML, or the text of `nvidia-smi topo -m` (.txt)",
    )
    group.add_argument(
        "--global-batch",
        required=batch_required,
        type=batch,
        metavar="B",
        help="sequences (or images) per step; 64/gpu for CNNs",
    )
    group.add_argument("--seq-len", type=whole, metavar="S", help="tokens per sequence (transformers need it)")
    group.add_argument(
        "--precision", metavar="P", help="bf16 (default), fp16, fp32, tf32, fp8, mxfp8, fp4, nvfp4: what the device has"
    )
    group.add_argument(
        "--framework",
        metavar="F",
        help="training software: NAME, NAME@VERSION or a YAML file with `like: NAME` (default megatron-lm; see "
        "`forerun list frameworks`)",
    )
    add_switches(group)
    group.add_argument(
        "--optimizer",
        choices=("sgd", "momentum", "adam", "muon"),
        help="default: that of the framework (adam; momentum for operator graphs)",
    )
    group.add_argument("--tokens", type=count, metavar="N", help="length of the whole training, like 15T")
    group.add_argument(
        "--moe-imbalance",
        type=positive,
        metavar="X",
        help="tokens of the busiest expert rank over the mean (default 1.0)",
    )
    group.add_argument(
        "--lora",
        metavar="RANK",
        help="train adapters beside frozen matrices; RANK:PRODUCTS with attention+mlp (default) or experts",
    )
    group.add_argument(
        "--freeze", metavar="PART,...", help="parts that are not trained: embedding, head, layers by name"
    )
    group.add_argument(
        "--documents",
        metavar="TOKENS",
        help="sequences are packed of documents of so many tokens, or a file with a length per line",
    )
    group.add_argument(
        "--ignore-config-field",
        action="append",
        default=[],
        metavar="NAME",
        help="a field of config.json that does not change the cost (may be repeated)",
    )
    group.add_argument("--usd-per-gpu-hour", type=positive, metavar="USD", help="price of one GPU for one hour")
    if learned:
        group.add_argument(
            "--profile",
            metavar="FILE",
            help="operators and collectives of this machine, as `forerun profile` wrote them",
        )
        group.add_argument(
            "--calibration", metavar="FILE", help="constants of this machine, as `forerun calibrate` wrote them"
        )
    graphs = parser.add_argument_group("operator graphs")
    graphs.add_argument(
        "--seconds-per-sample",
        type=positive,
        metavar="S",
        help="forward and backward pass of one sample on one GPU as measured (batch 64)",
    )
    graphs.add_argument(
        "--allow-generic",
        action="store_true",
        help="cost operators of an imported graph that have no rule by their bytes and operations",
    )
    graphs.add_argument("--inference", action="store_true", help="forward passes alone: nothing is trained")
    graphs.add_argument("--paradl", action="store_true", help="also predict with ParaDL's formulas (simulate, explain)")


def add_switches(group: "argparse._ArgumentGroup") -> None:
    """Add ``--with`` and ``--without``."""
    group.add_argument(
        "--with",
        dest="with_switches",
        action="append",
        default=[],
        metavar="SWITCH[=SETTING],...",
        help="switches of the software, like tp-comm-overlap,dispatcher=deepep (see `forerun show FRAMEWORK`)",
    )
    group.add_argument(
        "--without",
        dest="without_switches",
        action="append",
        default=[],
        metavar="SWITCH,...",
        help="switches to turn off",
    )


def switches_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the switches that the user set.

    Raises:
        RequestError: one is unknown, set twice, or has no such setting.
    """
    from forerun.spaces.frameworks import parse_switches

    return parse_switches(args.with_switches, args.without_switches)


def add_workers(parser: Parser) -> None:
    """Add who does the work."""
    group = parser.add_argument_group("workers (the result does not depend on them)")
    group.add_argument(
        "--workers",
        metavar="KIND",
        help="serial, processes or ray (default: this process, plus others for long searches)",
    )
    group.add_argument("--worker-count", type=some_workers, metavar="N", help="how many (default: one per core)")
    group.add_argument("--address", metavar="A", help="Ray cluster to use: HOST:PORT, ray://HOST:PORT or auto")


def workers_of(args: argparse.Namespace) -> "Choice":
    """Return what the user says about workers."""
    from forerun.search.workers import Choice

    return Choice(kind=args.workers, count=args.worker_count, address=args.address)


def add_json(parser: Parser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else on stdout")


def add_gpus(parser: Parser) -> None:
    """Add ``--gpus`` for verbs that are given a strategy."""
    parser.add_argument("--gpus", metavar="N", help="check that the strategy occupies this many GPUs")


def add_strategy(parser: Parser) -> None:
    """Add ``--strategy``."""
    parser.add_argument("--strategy", required=True, metavar="TEXT", help='like "tp4 pp2 dp8 mbs1 zero1 sp"')


def add_strategy_or_tree(parser: Parser) -> None:
    """Add ``--strategy`` and ``--tree``, of which one is needed."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--strategy", metavar="TEXT", help='like "tp4 pp2 dp8 mbs1 zero1 sp"')
    group.add_argument(
        "--tree",
        type=Path,
        metavar="FILE",
        help="a strategy tree (YAML) instead: layers and stages that differ; simulated event by event",
    )


def request_of(args: argparse.Namespace, *, graphs: tuple[str, ...] = (), **fields: Any) -> "Request":
    """Return the request of the shared flags; ``fields`` are added to it. ``graphs``: flags that the answer takes for
    an operator graph; none where it takes no such model.

    Raises:
        RequestError: a flag that transformers need is missing, or one is set that they do not have.
    """
    from forerun.search.request.request import Request

    check_kind(args, graphs)
    switches = switches_of(args)
    if args.seq_len is not None:
        switches |= _optimizer_switch(args.optimizer, switches)
    return Request(
        model=args.model,
        cluster=args.cluster,
        global_batch=args.global_batch,
        seq_len=args.seq_len,
        gpus=args.gpus,
        precision=args.precision,
        framework=args.framework,
        switches=switches,
        tokens=args.tokens,
        inference=args.inference,
        moe_imbalance=args.moe_imbalance,
        lora=args.lora,
        freeze=args.freeze,
        documents=args.documents,
        usd_per_gpu_hour=args.usd_per_gpu_hour,
        profile=getattr(args, "profile", None),
        calibration=getattr(args, "calibration", None),
        ignored_config_fields=tuple(args.ignore_config_field),
        seconds_per_sample=args.seconds_per_sample,
        optimizer=None if args.seq_len is not None else args.optimizer,
        allow_generic=args.allow_generic,
        **fields,
    )


def _optimizer_switch(optimizer: str | None, switches: Mapping[str, str]) -> dict[str, str]:
    """Name the switch of a transformer's framework that ``--optimizer`` sets; none for the default.

    Raises:
        RequestError: transformers have no such optimizer, or ``--with`` names another one.
    """
    if optimizer is None:
        return {}
    if optimizer not in TRANSFORMER_OPTIMIZERS:
        known = " or ".join(TRANSFORMER_OPTIMIZERS)
        raise RequestError(f"--optimizer {optimizer} is for operator graphs; transformers train with {known}")
    if switches.get("optimizer", optimizer) != optimizer:
        raise RequestError(f"--optimizer {optimizer} and --with optimizer={switches['optimizer']}: drop one of them")
    return {} if optimizer == TRANSFORMER_OPTIMIZERS[0] else {"optimizer": optimizer}


def check_kind(args: argparse.Namespace, graphs: tuple[str, ...]) -> None:
    """Refuse flags, or the lack of one, that make no sense for the kind of model; ``graphs`` as in ``request_of``.

    Raises:
        RequestError: see there.
    """
    from forerun.spaces.opgraph.resolve import names_graph_model

    if names_graph_model(args.model):
        if not graphs:
            raise RequestError(
                f"{args.model} is an operator graph; search, sweep, simulate, explain, limits, scale and improve take "
                "such models"
            )
        if args.paradl and "paradl" not in graphs:
            raise RequestError("--paradl is about one split; use it with `forerun explain` or `forerun simulate`")
        only(args, graphs, f"is for transformers, and {args.model} is an operator graph; drop it")
        return
    if args.seq_len is None:
        from forerun.spaces.models import resolve_model
        from forerun.spaces.opgraph.catalogue import graph_model_names

        # A name that no model has is the larger mistake; that of a network needs no --seq-len.
        if near := nearest(args.model, graph_model_names()):
            raise RequestError(f"unknown model {quoted(args.model)}; operator graphs like it: {', '.join(near)}")
        resolve_model(args.model, ignore=frozenset(args.ignore_config_field))
        raise RequestError("--seq-len is missing; see `forerun search --help`")
    for flag, value in (
        ("--seconds-per-sample", args.seconds_per_sample),
        ("--allow-generic", args.allow_generic),
        ("--paradl", args.paradl),
    ):
        if value:
            raise RequestError(f"{flag} is for operator graphs, and {args.model} is not")


def single_request(args: argparse.Namespace, *, graphs: tuple[str, ...] = ()) -> "Request":
    """Return the request of a verb that is given its strategies and ranks nothing; ``graphs`` as in ``request_of``."""
    from forerun.search.request.request import DEFAULT_OBJECTIVE, DEFAULT_TOP

    return request_of(args, graphs=graphs, objective=DEFAULT_OBJECTIVE, top=DEFAULT_TOP)
