"""``forerun rollout``: a trainer and the engines that generate for it, placed on one cluster."""

import argparse

from forerun.search.cli.arguments import single_request
from forerun.search.cli.progress import show_progress
from forerun.search.files.documents import SCHEMA, dump_json, versions
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, of_transformer
from forerun.search.rollout import Rollout, RolloutPlacement, place
from forerun.spaces.units import format_seconds


def run(args: argparse.Namespace) -> int:
    """Search the trainer for every share of the GPUs and print the placements."""
    request = single_request(args)
    rollout = Rollout(tokens_per_s=args.rollout_rate, response=args.response, forwards=args.forward_passes)
    setting = of_transformer(resolve(request))
    try:
        _print(args, setting, place(request, rollout, show_progress))
    except EndedEarly as stop:
        if stop.found:
            _print(args, setting, stop.found)
        raise
    return 0


def _print(args: argparse.Namespace, setting: Setting, placements: tuple[RolloutPlacement, ...]) -> None:
    """Print the placements, fastest first."""
    if args.json:
        rows = [
            {
                "together": one.together,
                "train_gpus": one.train_gpus,
                "rollout_gpus": one.rollout_gpus,
                "step_time_s": one.step_time_s,
                "generate_s": one.generate_s,
                "forward_s": one.forward_s,
                "train_s": one.train_s,
                "weights_s": one.weights_s,
                "reload_s": one.reload_s,
                "idle_share": one.idle_share,
                "trainer": one.row.to_json(),
            }
            for one in placements
        ]
        document = {**setting.to_json(), "defaults": setting.defaults, "notes": (*setting.warnings, *setting.notes)}
        print(dump_json({"schema": SCHEMA, "request": document, "placements": rows, "versions": versions()}))
        return
    from rich.text import Text

    from forerun.search.cli.console import open_console, say
    from forerun.search.cli.tables import table_of

    table = table_of(
        ("|GPUs", ">train", ">generate", ">step", ">generation", ">training", ">reload", ">idle"),
        (
            (
                "together" if one.together else "apart",
                f"{one.train_gpus}",
                f"{one.rollout_gpus}",
                *map(format_seconds, (one.step_time_s, one.generate_s, one.forward_s + one.train_s)),
                format_seconds(one.weights_s + one.reload_s),
                f"{one.idle_share:.0%}",
            )
            for one in placements
        ),
    )
    where = f"{setting.context.cluster.name}, {setting.request.gpus} GPUs"
    head = f"{setting.context.model.name} on {where}: fastest step first"
    best = placements[0].row
    trainer = f"trainer of the first: {best.name}, {best.peak_memory_gib:.1f} of {best.memory_limit_gib:.1f} GiB"
    remarks = (Text(line, style="dim") for line in setting.remarks())
    say(open_console(), Text(head, style="bold"), table, Text(trainer), *remarks)
