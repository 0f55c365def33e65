"""Flags of event-level steps: unequal replicas, and output files (trace, picture, execution traces)."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.search.request.model_kind import AnyContext
    from forerun.search.request.setting import Setting
    from forerun.simulator.events import Disturbance, EventResult


def refuse_step_files(args: argparse.Namespace) -> None:
    """Refuse files without events.

    Raises
    ------
        RequestError: a file is requested.
    """
    from forerun.spaces.errors import RequestError

    for name in ("trace", "timeline", "chakra"):
        if getattr(args, name) is not None:
            raise RequestError(f"--{name} needs --fidelity events: closed forms have no timeline")


def write_step_files(args: argparse.Namespace, setting: "Setting[AnyContext]", result: "EventResult") -> None:
    """Write the requested files.

    Raises
    ------
        RequestError: a file cannot be written, or its suffix is unknown.
    """
    from forerun.spaces.errors import RequestError

    write_timelines(args, result)
    if args.chakra is not None:
        if args.strategy is None:
            raise RequestError("--chakra needs a flat --strategy; a tree has no execution traces yet")
        from forerun.search.board.folder import claimed
        from forerun.search.request.kinds import kind_of
        from forerun.search.request.setting import legal_strategy

        strategy = legal_strategy(setting, args.strategy)
        kind = kind_of(setting.context)
        with claimed(args.chakra, force=args.force):
            kind.write_chakra(setting.context, strategy, result, args.chakra, contention=args.contention)


def write_timelines(args: argparse.Namespace, result: "EventResult") -> None:
    """Write trace and picture if requested.

    Raises
    ------
        RequestError: a file cannot be written, or its suffix is unknown.
    """
    from forerun.simulator.events import timeline_html, timeline_svg, write_trace
    from forerun.spaces.errors import RequestError
    from forerun.spaces.files import write_text

    if args.trace is not None:
        write_trace(result, args.trace)
    if args.timeline is not None:
        drawn = {".svg": timeline_svg, ".html": timeline_html}.get(args.timeline.suffix.lower())
        if drawn is None:
            raise RequestError(f"--timeline writes .svg or .html, but got {args.timeline}")
        write_text(args.timeline, drawn(result))


def disturbance_of(args: argparse.Namespace) -> "Disturbance | None":
    """Return the disturbance of the flags, None without any.

    Raises
    ------
        RequestError: the flags need ``--fidelity events``, or a seed is given without jitter.
    """
    from forerun.simulator.events import Disturbance
    from forerun.spaces.errors import RequestError

    if args.seed is not None and args.jitter is None:
        raise RequestError("--seed is that of the jitter; add --jitter")
    if args.jitter is None and not args.slow and not args.every_replica:
        return None
    if args.fidelity == "analytic" or (args.fidelity is None and args.tree is None):
        raise RequestError("--jitter, --slow and --every-replica need --fidelity events: closed forms know one replica")
    return Disturbance(
        seed=args.seed or 0, jitter=args.jitter or 0.0, slow=dict(args.slow), every_replica=bool(args.every_replica)
    )
