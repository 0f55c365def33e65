"""Keys of SimuMax's strategy files.

Source: ``StrategyConfig`` of MooreThreads/SimuMax 1.2.
"""

from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.syntax import document
from forerun.spaces.strategies import Recompute, Split
from forerun.spaces.strategies.axes import schedules_in

SCHEDULES = {name: schedule for schedule, name in schedules_in("simumax").items()}


def adjust(facts: LaunchFacts) -> None:
    """Determine the schedule, the layers of stages and recompute."""
    settings, pp = facts.settings, facts.get("pp", 1)
    text = (settings.text("pp_schedule", "pipeline_schedule", "schedule") or "").lower().replace("-", "_")
    facts.values["schedule"] = SCHEDULES.get(text)
    if text not in SCHEDULES and text and "1f1b" not in text:
        facts.notes.append(f"schedule {text} has no name in a strategy; read as 1f1b")
    first, last = (settings.whole(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    facts.values["split"] = _split(settings, pp, bool(first or last))
    if (first or last) and pp > 1:
        stated = f"stages of {first or 'the rest'} and {last or 'the rest'} layers"
        facts.notes.append(f"{stated} need the model; read as balanced")
    facts.values["recompute"] = _recompute(settings, facts.notes)


def _split(settings: LaunchSettings, pp: int, edges: bool) -> Split:
    embedding, loss = (settings.flag(f"account_for_{end}_in_pipeline_split") or False for end in ("embedding", "loss"))
    if edges:
        return Split.BALANCED
    if embedding and loss and pp > 2:
        return Split.LIGHT_ENDS
    return Split.LIGHT_LAST if loss and not embedding else Split.EVEN


def _recompute(settings: LaunchSettings, notes: list[str]) -> Recompute:
    if not settings.flag("enable_recompute"):
        return Recompute.NONE
    kind = settings.text("recompute_granularity") or "full_block"
    layers = settings.whole("recompute_layer_num", least=0)
    if "full" in kind:
        if layers:
            notes.append(f"recompute of {layers} layers per stage is read as recompute=full: all layers")
        return Recompute.FULL
    notes.append(f"recompute_granularity {kind} is read as recompute=selective: the attention core")
    return Recompute.SELECTIVE


LAUNCHER = read_launcher("simumax", syntax=document, adjust=adjust)
