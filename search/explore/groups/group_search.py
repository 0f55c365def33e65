"""Search on groups of nodes that differ: plans with each stage on its group, simulated event by event.

Every class of degrees has a lower bound over all splits of its layers. Dynamic programming splits the layers over
stages, each with the speed and the memory of its group. Each plan has its own bound. Plans are simulated in the order
of their bounds, until the next bound is above the last row to keep. The order of simulation does not depend on the
number of rows, so ``--top K`` has the first rows of ``--top K + 1``.
"""

import dataclasses

from forerun.search.board.found import Found
from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.rows import Row
from forerun.search.explore.flat.best import best_row
from forerun.search.explore.groups.group_plans import ordered_plans
from forerun.search.explore.groups.simulated_plans import EVALUATIONS, Played, planned_row, simulated
from forerun.search.order.ideas import chosen_together
from forerun.search.order.worth import worth_of
from forerun.search.request.limits import NO_LIMITS
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, of_transformer
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.strategies import Placement, Schedule
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.units import format_seconds


def search_plans(
    setting: Setting, *, per_stage: tuple[str, ...], evaluations: int = EVALUATIONS, played: Played | None = None
) -> Found:
    """Search the strategies on all groups of nodes of a cluster.

    Layers per stage are free; with "recompute" among ``per_stage``, the recompute of every stage is free too.
    ``setting``: result of ``group_setting``.

    Raises:
        RequestError: an axis is restricted to choices that groups do not support.
        InfeasibleError: no plan fits on the groups.
    """
    space = _space(setting, per_stage)
    done = simulated(
        setting,
        ordered_plans(space),
        play=lambda plan: planned_row(setting, plan),
        worth=lambda row: worth_of(setting.context, row.strategy, row.step_time_s, row.oom_risk),
        evaluations=evaluations,
        played=played,
    )
    best, count, feasible = done.best(chosen_together(setting.top)), len(done.rows), len(done.ranked())
    if not best:
        raise InfeasibleError(_nothing(setting))
    counts = {"memory": count - feasible, "not evaluated": space.size - count}
    rejected = {reason: count for reason, count in counts.items() if count}
    return Found(
        rows=best,
        space=SpaceCounts(size=space.size, legal=count, feasible=feasible, rejected=rejected),
        remarks=(
            f"layers are divided among the stages of {_names(setting)} by speed and memory; {count} plans were "
            f"simulated event by event, stopped because {done.stopped}",
            *_alone(setting, best[0]),
        ),
        request={"per_stage": list(per_stage)},
    )


def group_setting(request: Request | Setting, per_stage: tuple[str, ...]) -> Setting:
    """Resolve a request on groups of nodes.

    Raises:
        RequestError: the request contains options that groups do not support.
    """
    setting = of_transformer(resolve(request, groups=True))
    request, total = setting.request, setting.context.cluster.max_devices
    if request.gpus is None and request.usd_per_hour is None:
        setting = dataclasses.replace(setting, request=dataclasses.replace(request, gpus=str(total)), gpus=(total,))
    if setting.gpus != (total,):
        raise RequestError(
            f"the groups of {setting.context.cluster.name} have {total} devices, all of which a search uses; leave "
            "--gpus away, or change the devices: of the groups"
        )
    if setting.objective not in ("throughput", "cost") or setting.limits != NO_LIMITS:
        raise RequestError(
            "on groups of nodes that differ the fastest strategy is searched, without limits on the whole training; "
            "leave --objective, --train-within and --train-usd away"
        )
    if request.profile is not None or request.calibration is not None:
        raise RequestError("a profile or a calibration is of one kind of node; leave it away where groups differ")
    if unsupported := sorted({"tp", "offload"} & set(per_stage)):
        raise RequestError(
            f"stages on groups of nodes that differ share {' and '.join(unsupported)}; "
            "use --per-stage layers,recompute there"
        )
    return setting


def _space(setting: Setting, per_stage: tuple[str, ...]) -> StagedSpace:
    """Return the space: stages on consecutive separate devices, with any number of layers each."""
    flat = setting.space()
    wanted = {
        "placement": (int(Placement.TP_CP_EP_DP_PP),),
        "vpp": (1,),
        "schedule": (int(Schedule.ONE_F_ONE_B),),
    }
    for axis, choices in wanted.items():
        if not set(choices) & set(flat.choices[axis]):
            raise RequestError(f"stages on groups that differ take {axis} of {choices}; lift the restriction of {axis}")
    flat = dataclasses.replace(flat, choices={**flat.choices, **wanted})
    return StagedSpace(flat=flat, reach=setting.context.model.layer_count, recompute="recompute" in per_stage)


def _alone(setting: Setting, best: Row) -> list[str]:
    """Describe the best strategy on every group alone."""
    notes = []
    for group, context in zip(setting.context.cluster.groups, setting.context.on_groups, strict=True):
        alone = f"{group.devices} devices of {group.cluster.name} alone"
        group_setting = dataclasses.replace(setting, context=context, gpus=(group.devices,))
        try:
            row = best_row(group_setting, objective="throughput")
        except RequestError as error:
            notes.append(f"{alone}: {error}")
            continue
        if row is None:
            notes.append(f"{alone}: nothing fits")
            continue
        gain = row.step_time_s / best.step_time_s
        notes.append(f"{alone} take {format_seconds(row.step_time_s)} ({gain:.2f} times as long) with {row.name}")
    return notes


def _names(setting: Setting) -> str:
    return " and ".join(f"{group.devices} x {group.cluster.name}" for group in setting.context.cluster.groups)


def _nothing(setting: Setting) -> str:
    return (
        f"nothing is feasible on {_names(setting)}: no plan makes whole stages on every group, satisfies all laws and "
        "fits into memory; nearest fix: groups whose devices have a large common divisor, more nodes, fewer restricted "
        "axes, --per-stage layers,recompute, or a shorter --seq-len"
    )
