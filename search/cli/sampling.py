"""Flags for stages that differ: the sampler, its budget, and searches on groups of nodes."""

import argparse
from typing import TYPE_CHECKING

from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.cli.progress import show_progress
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.explore.samplers import Exploring
    from forerun.search.request.model_kind import AnyContext
    from forerun.search.request.setting import Setting


DEVICES = "devices"
"""Value of ``--per-stage`` with planned instead of sampled stages."""


def plans_device_counts(args: argparse.Namespace) -> bool:
    """Whether stages with different numbers of devices are to be planned."""
    return DEVICES in _named(args)


def samples_stages(args: argparse.Namespace) -> bool:
    """Whether a sampler searches stages that differ."""
    return bool(set(_named(args)) - {DEVICES})


def _named(args: argparse.Namespace) -> list[str]:
    return [word.strip() for word in (args.per_stage or "").split(",") if word.strip()]


def exploring_of(args: argparse.Namespace) -> "Exploring | None":
    """Return the settings of the sampler; None if every candidate is scored."""
    named = _named(args)
    if args.per_stage is not None and not named:
        raise RequestError("--per-stage needs one of layers, recompute, tp, offload, devices")
    per_stage = tuple(dict.fromkeys(name for name in named if name != DEVICES))
    if args.sampler in (None, "auto", "exhaustive") and not per_stage:
        given = {"--evaluations": args.evaluations, "--time-limit": args.time_limit, "--storage": args.storage}
        for flag, value in {**given, "--start": args.start or None}.items():
            if value is not None:
                raise RequestError(f"{flag} is for samplers, and every candidate is looked at; add --per-stage layers")
        return None
    from forerun.search.explore.samplers import Exploring
    from forerun.search.explore.samplers.best_file import NAME

    return Exploring(
        sampler=args.sampler or "auto",
        seed=args.seed,
        per_stage=per_stage or ("layers",),
        storage=args.storage,
        evaluations=args.evaluations,
        seconds=args.time_limit,
        starts=tuple(args.start),
        best=None if args.out is None else args.out / NAME,
    )


def suited(setting: "Setting[AnyContext]") -> "tuple[Exploring | None, str]":
    """Choose the sampler of a space of equal stages for ``--sampler auto``, with the reason as a remark."""
    from forerun.search.explore.samplers import Exploring
    from forerun.search.explore.samplers.registry import suited_to_flat

    name, why = suited_to_flat(setting.space())
    return (None if name == "exhaustive" else Exploring(per_stage=())), f"sampler {name} ({why})"


def search_on_groups(args: argparse.Namespace, setting: "Setting") -> "Leaderboard":
    """Search strategies on groups of nodes that differ, and return the leaderboard."""
    from forerun.search.answer.searches import search_groups
    from forerun.search.explore.groups.simulated_plans import EVALUATIONS

    refuse_unserved(
        args,
        Answer.GROUPS,
        f"is for equal nodes, and the groups of {args.cluster} differ: layers go to stages by the pace of every "
        "group and are simulated event by event in this process",
    )
    if plans_device_counts(args):
        raise RequestError(
            f"stages of unlike numbers of devices are planned on equal nodes, and the groups of {args.cluster} differ; "
            "leave devices out of --per-stage"
        )
    named = [word.strip() for word in (args.per_stage or "layers").split(",") if word.strip()]
    evaluations = EVALUATIONS if args.evaluations is None else args.evaluations
    return search_groups(
        setting,
        per_stage=tuple(dict.fromkeys(["layers", *named])),
        evaluations=evaluations,
        played=lambda count: show_progress("simulating plans", count, evaluations),
    )
