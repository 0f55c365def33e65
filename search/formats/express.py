"""A launch in one format, checked by the laws of the format's framework."""

import dataclasses
from collections.abc import Collection
from typing import Any

from forerun.search.formats.contract import Files, Format, Launch, Limit
from forerun.search.formats.limits import change
from forerun.search.formats.platforms import placed
from forerun.search.formats.software import carried, chosen, refused, usual
from forerun.search.formats.stages import switches_of_all
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import FrameworkProfile, load_framework, settings_text, switched
from forerun.spaces.frameworks.hardware import UNSTATED
from forerun.spaces.frameworks.switches import with_settings
from forerun.spaces.strategies import Context, Software, Split, Strategy, violations
from forerun.spaces.strategies.racks import rack_devices
from forerun.spaces.strategies.software import running
from forerun.spaces.strategies.table import axis_values


def launch_in(context: Context, strategy: Strategy, *, name: str) -> Launch:
    """Return the launch of a strategy of a request; ``name`` is free text for the files."""
    return Launch(
        strategy=strategy,
        model=context.model,
        workload=context.workload,
        name=name,
        **machine_facts(context.cluster),
    )


def machine_facts(cluster: Cluster) -> dict[str, Any]:
    """Return the fields of a launch that describe its cluster."""
    pods = bool(cluster.levels) and cluster.levels[0].kind == "torus"
    return {
        "devices_per_node": cluster.devices_per_node,
        "rack_devices": rack_devices(cluster),
        "pod_devices": cluster.scale_up_size if pods else 0,
        "vendor": cluster.device.vendor,
        "device": cluster.device.name,
    }


def express(item: Format, launch: Launch, context: Context | None) -> Files:
    """Return the files of a launch in one format, after checking the laws of its framework.

    Raises
    ------
    RequestError
        The format cannot express the launch, or the framework would not run it.
    """
    _check_vendor(item, launch)
    if context is None:
        return placed(launch, item.express(launch))
    software = _software(launch, context)
    spoken = _spoken(item, software)
    launch = _switched(item, launch, context)
    files = _lawful(item, context).express(launch)
    _check_words(item, software, launch, spoken)
    return placed(launch, files)


def other_framework(item: Format, launch: Launch, context: Context) -> Context | None:
    """Return the context for predicting a launch in another framework's format, None for the searched framework's."""
    named = [name for name in (item.framework, *item.also, item.predicted_as) if name is not None]
    if not named or {*named} & {*context.framework.lineage}:
        return None
    framework = load_framework(named[0])
    if not _runs_on(framework.vendors, launch):
        return None
    settings = _switched(item, launch, context).switches
    return dataclasses.replace(context, framework=with_settings(framework, settings), correction=None)


def _software(launch: Launch, context: Context) -> FrameworkProfile:
    """Return the profile of a launch's prediction, including switches that its strategy turns on."""
    return switched(running(context, launch.strategy.software).framework, switches_of_all(launch.strategy))


def _switched(item: Format, launch: Launch, context: Context) -> Launch:
    """Return a launch with the switches that a format writes as flags."""
    software = _software(launch, context)
    spoken = _spoken(item, software)
    if spoken is None and item.writes:  # forerun's own format has these switches in the strategy
        return dataclasses.replace(launch, switches=chosen(context.framework))
    unlike = None if switches_of_all(launch.strategy) else launch.strategy.stage_offload
    strategy = dataclasses.replace(launch.strategy, software=Software.NONE, stage_offload=unlike)
    switches = {} if spoken is None else carried(software, spoken)
    switches = {k: v for k, v in switches.items() if item.writes is None or k in item.writes}
    return dataclasses.replace(launch, strategy=strategy, switches=switches)


def _lawful(item: Format, context: Context) -> Format:
    """Return a format of another framework than the searched one with its framework's laws as a limit."""
    if item.framework is None or item.framework == context.framework.name:
        return item
    in_framework = dataclasses.replace(context, framework=load_framework(item.framework))

    def broken(launch: Launch) -> list[str]:
        return [message for _, message in violations(axis_values(launch.strategy), in_framework)]

    def fix(launch: Launch) -> Launch:
        others = [change(launch, **fields) for fields in ({"sp": True}, {"split": Split.BALANCED}, {"etp": 1})]
        return min([launch, *others], key=lambda one: len(broken(one)))

    laws = Limit(broken=lambda launch: bool(broken(launch)), reason=lambda launch: "; ".join(broken(launch)), fix=fix)
    return dataclasses.replace(item, limits=(*item.limits, laws))


def _check_vendor(item: Format, launch: Launch) -> None:
    """Raise RequestError if a format does not support the devices' vendor."""
    vendors = load_framework(item.framework).vendors if item.framework is not None else item.vendors
    if not _runs_on(vendors, launch):
        raise RequestError(
            f"{item.title} ({item.name}) starts software for devices of {' or '.join(vendors)}, and not of "
            f"{launch.vendor}"
        )


def _runs_on(vendors: Collection[str], launch: Launch) -> bool:
    """Whether software of these vendors, empty for any, runs on a launch's devices."""
    return not vendors or launch.vendor in ("", UNSTATED, *vendors)


def _spoken(item: Format, software: FrameworkProfile) -> str | None:
    """Return the framework whose flags express switches in a format, None without one."""
    return item.framework or next((name for name in item.also if name in software.lineage), None)


def _check_words(item: Format, software: FrameworkProfile, launch: Launch, spoken: str | None) -> None:
    """Raise RequestError if the format cannot express a chosen switch.

    Formats of other frameworks are exempt, since they run other software.
    """
    of_framework = any(name in software.lineage for name in (item.framework, *item.also) if name)
    if not of_framework and (item.framework or item.also):
        return
    if lacking := refused(software, launch, spoken, item.writes):
        without = ",".join(f"{name}={usual(software)[name]}" for name in lacking)
        raise RequestError(
            f"{item.title} ({item.name}) has no flag for {settings_text(lacking)}, which the prediction assumed; "
            f"search with --with {without}, or export to forerun"
        )
