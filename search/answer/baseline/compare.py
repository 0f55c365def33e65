"""Comparison of the current run with the best row, by part, and of its prediction with its measured step."""

import dataclasses
from collections.abc import Iterator

from forerun.search.answer.baseline.present import Present
from forerun.search.answer.explain.explain import explain_strategy
from forerun.search.answer.explain.why import against
from forerun.search.answer.intervals import certain
from forerun.search.answer.notes.uneven_experts import whole_experts_note
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.requested import Baseline, MeasuredStep, ScoredChange
from forerun.search.board.rows import AnyRow, Row, rows_of
from forerun.search.formats.limits import canonical
from forerun.search.request.request import Request
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator import score as simulator_score
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import FrameworkProfile, all_switches, load_framework
from forerun.spaces.frameworks.switch_words import flag_words
from forerun.spaces.frameworks.switches import with_settings
from forerun.spaces.models.tuning import tuning_of
from forerun.spaces.strategies import Context, Software, Strategy, table_of, violations
from forerun.spaces.strategies.axes import CHOSEN
from forerun.spaces.strategies.software import can_turn_on, running, settings_of, settled, those_on
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.table import axis_values
from forerun.spaces.units import format_seconds

CALLED = "Your run"
OWN_CHOICE = "framework "
"""First words of reasons from a framework's profile, not from a law of the model; existing runs may violate them."""
IMPLAUSIBLE = 1.5
"""Factor between measured and predicted step from which both are probably of different trainings."""
COMPARED = {"global_batch": "global batch", "seq_len": "sequence length", "precision": "precision"}
WORTH_A_NOTE = 0.01
"""Least gain of a proposed switch."""
WORTH_NAMING = 1.1
"""Least ratio of step times for naming another precision."""
SIZES = {"layers": "layers", "hidden": "hidden size"}


def adopt(request: Request, present: Present) -> tuple[Request, tuple[str, ...]]:
    """Return the request with the run's framework and precision as defaults, and the list of adopted values."""
    taken = []
    if request.framework is None and present.framework is not None:
        request = dataclasses.replace(request, framework=present.framework)
        taken.append(f"framework {present.framework} (from the baseline)")
    precision = present.workload.get("precision")
    if request.precision is None and isinstance(precision, str):
        request = dataclasses.replace(request, precision=precision)
        taken.append(f"precision {precision} (from the baseline)")
    return request, tuple(taken)


def context_of(setting: Setting, present: Present) -> tuple[Context, tuple[str, ...]]:
    """Return the context of a run with its framework, and notes on differences.

    Raises
    ------
    RequestError
        The run breaks laws of model or cluster; the message names all of them.
    """
    context = setting.context
    notes = []
    if present.framework is not None and present.framework not in context.framework.lineage:
        notes.append(
            f"your run is predicted as {present.framework}, the others as {context.framework.name}; "
            f"add --framework {present.framework} to compare both with one framework"
        )
        context = dataclasses.replace(context, framework=load_framework(present.framework), correction=None)
    free = setting.free_software & can_turn_on(context.framework)
    context, different = _as_switched(context, present, free)
    notes += different
    strategy = _strategy_of(context, present, free)
    if strategy.devices > context.cluster.max_devices:
        raise RequestError(
            f"the baseline {present.strategy} occupies {strategy.devices} GPUs, but {context.cluster.name} has "
            f"{context.cluster.max_devices}"
        )
    broken = violations(axis_values(strategy), context) if strategy.stage_choices is None else []
    of_profile = [message for code, message in broken if code.startswith(OWN_CHOICE)]
    laws = [message for message in broken_laws(strategy, context) if message not in of_profile]
    if laws:
        lines = "\n".join(f"  {message}" for message in laws)
        raise RequestError(f"the baseline {present.strategy} cannot train {context.model.name}:\n{lines}")
    notes += [f"your run breaks a law of the profile: {message}" for message in of_profile]
    if present.format is None:  # a handwritten strategy
        notes += whole_experts_note(context, present.source)
    return context, (*notes, *_differences(context, present))


def _strategy_of(context: Context, present: Present, free: Software) -> Strategy:
    """Return the strategy of a run; its ``free`` switches (set by searches) come from the files or the text."""
    strategy = canonical(present.strategy, context.model.layer_count)
    if not present.switches:
        return strategy
    on = free & those_on(present.switches)
    return settled(dataclasses.replace(context, free_software=on), dataclasses.replace(strategy, software=on & CHOSEN))


def _as_switched(context: Context, present: Present, free: Software) -> tuple[Context, list[str]]:
    """Return the context with the switches of a run, and a note on differences from the search.

    ``free`` switches belong to the strategy.
    """
    profile = context.framework
    searched = dict(profile.switches)
    searched |= {name: on for name, on in settings_of(free).items() if present.switches.get(name) == on}
    stated = {
        name: setting
        for name, setting in present.switches.items()
        if name in searched and not _left_open(profile, name, setting, searched[name])
    }
    other = {name: setting for name, setting in stated.items() if setting != searched[name]}
    if not other:
        return context, []
    settings_text = ", ".join(f"{name}={setting} ({searched[name]})" for name, setting in other.items())
    return (
        dataclasses.replace(context, framework=with_settings(profile, other)),
        [f"your run is predicted with its own switches, in brackets those of the search: {settings_text}"],
    )


def _left_open(profile: FrameworkProfile, name: str, stated: str, searched: str) -> bool:
    """Whether files cannot distinguish a setting of the search from the default."""
    support = all_switches()[name].support(profile)
    return support is not None and stated == support.unset and support.written(searched) is None


def _switch_notes(
    context: Context, searched: Context, turned_on: Software, strategy: Strategy, row: Row, score: Scorer
) -> list[str]:
    """Return the gain and the flags of each switch that differs in the search or its best row."""
    notes = []
    settings = dict(searched.framework.switches) | settings_of(turned_on)
    on = settings_of(strategy.software)
    for name, setting in context.framework.switches:
        if settings.get(name, setting) in (setting, on.get(name)):
            continue
        switch = all_switches()[name]
        profile = with_settings(context.framework, {name: settings[name]})
        scores = score(dataclasses.replace(context, framework=profile), table_of([strategy]))
        gain = row.step_time_s / float(scores.step_time_s[0]) - 1
        if gain >= WORTH_A_NOTE and bool(scores.fits[0]):
            support = switch.support(profile)
            flags = " ".join(flag_words(support.written(settings[name]) or {})) if support else ""
            notes.append(f"{name}={settings[name]}{f' ({flags})' if flags else ''} speeds your run up by {gain:.1%}")
    return notes


def _differences(context: Context, present: Present) -> Iterator[str]:
    """Yield differences of workload and model between the files of a run and the search."""
    workload = context.workload
    for name, title in COMPARED.items():
        stated, searched = present.workload.get(name), getattr(workload, name)
        if stated is not None and stated != searched:
            yield f"the files state {title} {stated}; your run is predicted with {searched} like the others"
    model = context.model
    lora, searched = present.workload.get("lora"), tuning_of(model).lora
    if lora is not None and lora != searched:
        other = f"--lora {searched}" if searched else "all of the model trained"
        yield f"the files train adapters, --lora {lora}; your run is predicted with {other} like the others"
    known = {"layers": model.layer_count, "hidden": model.hidden}
    for name, value in known.items():
        stated = present.model.get(name)
        if stated is not None and value is not None and stated != value:
            yield f"the files state {SIZES[name]} {stated}, but {model.name} has {value}"


def stand_beside(
    board: Leaderboard,
    setting: Setting,
    present: Present,
    *,
    score: Scorer = simulator_score,
    taken: tuple[str, ...] = (),
) -> Leaderboard:
    """Return a board with the user's run compared with its best row; ``score``: scorer of its rows.

    ``taken``: values adopted by ``adopt``, added to the board's defaults.

    Raises
    ------
    RequestError
        The run breaks a law of the model or the cluster.
    """
    context, notes = context_of(setting, present)
    strategy = _strategy_of(context, present, setting.free_software & can_turn_on(context.framework))
    price = setting.usd_per_gpu_hour
    row = certain(context, rows_of(context, [strategy], usd_per_gpu_hour=price, score=score))[0]
    best = board.rows[0]
    predicted_s, remarks = _predicted_as_measured(present, row, context, score)
    measured, more = measured_step(present, row, best, predicted_s)
    remarks = (*remarks, *more)
    switched_notes = _switch_notes(context, setting.context, best.strategy.software, strategy, row, score)
    baseline = Baseline(
        source=present.source,
        format=present.format,
        framework=context.framework.name,
        row=row,
        faster_rows=sum(other.throughput_per_gpu > row.throughput_per_gpu for other in board.rows),
        text=_half_precision(context, row, score) + comparison_text(row, best, measured),
        changes=_changes(context, strategy, price),
        notes=(*present.notes, *notes, *switched_notes, *remarks),
        switches=dict(running(context, strategy.software).framework.switches) if present.switches else {},
        unmodelled=present.unmodelled,
        other=present.other,
        unknown=present.unknown,
        measured=measured,
    )
    board = board.with_baseline(baseline, present.named, present.measured_as)
    return dataclasses.replace(board, defaults=(*taken, *board.defaults))


def _half_precision(context: Context, row: Row, score: Scorer) -> str:
    """Describe the gain of 16 bits over a run in fp32; empty if it is small or the run has no strategy."""
    precision = context.cluster.device.half_precision
    if context.workload.precision != "fp32" or precision not in context.cluster.device.peak_flops_per_s:
        return ""
    half_context = dataclasses.replace(context, workload=dataclasses.replace(context.workload, precision=precision))
    if broken_laws(row.strategy, half_context):
        return ""
    step_s = float(score(half_context, table_of([row.strategy])).step_time_s[0])
    times = row.step_time_s / step_s
    if times < WORTH_NAMING:
        return ""
    slower = format_seconds(step_s)
    return f"{CALLED} computes in fp32; in {precision} a step would take {slower}, {times:.1f} times faster. "


def _changes(context: Context, strategy: Strategy, price: float | None) -> tuple[ScoredChange, ...]:
    return explain_strategy(context, strategy, usd_per_gpu_hour=price).helping()


def measured_step(
    present: Present, row: AnyRow, best: AnyRow, predicted_s: float | None
) -> tuple[MeasuredStep | None, tuple[str, ...]]:
    """Return the measured step with the prediction for its workload, and a note if both are far apart.

    The prediction is None if there is none.
    """
    steps = present.steps
    if steps is None or present.measured_from is None:
        return None, ()
    remarks: tuple[str, ...] = ()
    ratio = None if predicted_s is None else steps.step_time_s / predicted_s
    if ratio is not None and max(ratio, 1 / ratio) > IMPLAUSIBLE:
        remarks = ("the measured step differs so much from the prediction that it may be of another training",)
    logged = steps.counted > 0
    measured = MeasuredStep(
        source=present.measured_from,
        step_time_s=steps.step_time_s,
        counted=steps.counted if logged else None,
        low_s=steps.low_s if logged else None,
        high_s=steps.high_s if logged else None,
        ratio=ratio,
        best_step_time_s=None if ratio is None else ratio * best.step_time_s,
    )
    return measured, remarks


def _predicted_as_measured(
    present: Present, row: Row, context: Context, score: Scorer
) -> tuple[float | None, tuple[str, ...]]:
    """Return the predicted step of the run with the measured batch and sequence, and a note if these differ.

    The step is None if it was measured on other devices, or is illegal with that workload.
    """
    if present.steps is None or present.measured_from is None:
        return None, ()
    searched = {"global_batch": context.workload.global_batch, "seq_len": context.workload.seq_len, "gpus": row.gpus}
    stated = {name: value for name, value in present.measured_workload.items() if name in searched and value}
    other = {name: value for name, value in stated.items() if value != searched[name]}
    if not other:
        return row.step_time_s, ()
    values = ", ".join(f"{name} {value}" for name, value in other.items())
    difference = f"the step of {present.measured_from} was measured with {values}"
    workload = dataclasses.replace(context.workload, **{name: value for name, value in other.items() if name != "gpus"})
    measured_context = dataclasses.replace(context, workload=workload)
    if "gpus" in other or broken_laws(row.strategy, measured_context):
        return None, (f"{difference}: not compared",)
    predicted_s = rows_of(measured_context, [row.strategy], score=score)[0].step_time_s
    return predicted_s, (f"{difference}: compared with the {format_seconds(predicted_s)} predicted for that",)


def comparison_text(row: AnyRow, best: AnyRow, measured: MeasuredStep | None) -> str:
    """Describe the reasons why a run is slower than the best row, and the error of its prediction."""
    if row.strategy == best.strategy:
        text = f"{CALLED} is the best already."
    else:
        text = against(best, row, name=CALLED)
    if measured is None or measured.ratio is None or measured.best_step_time_s is None:
        return text
    error = measured.ratio - 1
    return (
        f"{text} Its measured step is {format_seconds(measured.step_time_s)}, {abs(error):.1%} "
        f"{'longer' if error > 0 else 'shorter'} than predicted; with the same error, the step of the best is "
        f"{format_seconds(measured.best_step_time_s)}."
    )
