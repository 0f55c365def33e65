"""A strategy with its predicted cost, in the units of reports."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from forerun.search.board.evidence import NearestRuns
from forerun.search.board.notebook import Picture, bar_html, row_html
from forerun.search.request.kinds import kind_of
from forerun.search.request.model_kind import AnyContext, AnyStrategy
from forerun.search.request.scorer import Scorer
from forerun.simulator import MEMORY_PARTS, TIME_PARTS
from forerun.simulator import score as simulator_score
from forerun.simulator.costs.power import SITE, mean_power_w, power_limit_w
from forerun.simulator.memory.risk import RISKY, chance_above, oom_risk
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.strategies import Context, Strategy
from forerun.spaces.strategies.racks import rack_use

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from forerun.simulator.opgraph.bottleneck import SplitFacts

    S = TypeVar("S", bound=AnyStrategy, default=Strategy, covariant=True)
else:
    from typing import TypeVar

    S = TypeVar("S")

GIB = 2.0**30
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
JOULES_PER_MWH = 3.6e9
SHORT_UNITS: Mapping[str, str] = {"token": "tok", "image": "img", "sample": "smp"}
TIGHT_MARK = "tight memory"
MAY_NOT_FIT_MARK = "may not fit"
NO_LAUNCH_MARK = "no launch file"
"""Start of the mark on a row that no format of its framework can express."""
PLAUSIBLE_MFU = {False: 0.70, True: 0.55}
"""Highest plausible MFU without and with experts; highest published: 0.65 and 0.53 (maxtext README, TPU v5p)."""


def closed_form_mark(place: int | None) -> str:
    """Return the mark of a row with rank ``place`` before its event-level simulation."""
    return f"#{place} by closed forms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A strategy with a row's degrees and other choices on other axes, with predicted step, peak and OOM risk."""

    strategy: Strategy
    step_time_s: float
    peak_memory_gib: float
    oom_risk: float

    def to_json(self) -> dict[str, Any]:
        """Return the variant as plain data."""
        return {**dataclasses.asdict(self), "strategy": str(self.strategy)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Generic[S]):
    """One strategy and its predicted cost."""

    rank: int | None
    """Place on the leaderboard, from 1; None outside a leaderboard."""
    strategy: S
    """The strategy; for a strategy ``tree`` the strategy of its first layer."""
    gpus: int
    """Number of devices."""
    step_time_s: float
    """Seconds of one optimizer step."""
    throughput: float
    """Tokens or samples (``unit``) per second of all devices."""
    throughput_per_gpu: float
    """The same per device."""
    mfu: float
    """Share (0 to 1) of the dense peak at the training precision. Model FLOPs count only the unmasked part of causal
    attention and no recompute (frameworks that count the whole square report more: 7 % for an 8B model at 4k tokens, 40
    % at 64k)."""
    fits: bool
    """Whether the predicted peak is within ``memory_limit_gib``."""
    peak_memory_gib: float
    """Largest peak of all pipeline ranks, in GiB of one device."""
    memory_limit_gib: float
    """Memory limit up to which the strategy counts as fitting, in GiB."""
    oom_risk: float
    """Share of measured runs with this predicted peak that ran out of memory; with calibrated memory, the posterior
    probability from the machine's runs."""
    allocated_memory_gib: float
    """Peak that the framework's allocator would report, in GiB."""
    peak_stage: int
    """Pipeline rank that reaches the peak."""
    breakdown_s: Mapping[str, float]
    """Seconds by part; they add up to ``step_time_s``."""
    memory_gib: Mapping[str, float]
    """GiB by part; they add up to ``peak_memory_gib``."""
    cost_usd_per_hour: float | None
    """Price of all devices, in USD per hour; None without a price."""
    usd_per_million: float | None
    """USD per million tokens or samples; None without a price."""
    train_days: float | None
    """Days of the whole training; None without a number of training tokens."""
    train_cost_usd: float | None
    """USD of the whole training; None without a price or a number of tokens."""
    marks: tuple[str, ...]
    """Remarks shown after the row."""
    interval_level: float | None = None
    """Coverage probability of the intervals below; None without intervals."""
    step_time_low_s: float | None = None
    """Lower bound of a measured step in seconds, from the runs that ``evidence`` names."""
    step_time_high_s: float | None = None
    """Upper bound of a measured step in seconds."""
    evidence: NearestRuns | None = None
    """The measured runs behind the intervals; None without intervals."""
    same_as_rank: int | None = None
    """Best rank whose step cannot be distinguished from this row's; None without a calibration, or if all better ranks
    can."""
    peak_memory_low_gib: float | None = None
    """Lower bound of a measured peak of the device, in GiB; None without an interval."""
    peak_memory_high_gib: float | None = None
    """Upper bound of a measured peak, in GiB."""
    goodput: Mapping[str, float | None] | None = None
    """Goodput: ``effective_time``, shares of lost time, and seconds; None without ``--goodput``."""
    tree: str = ""
    """The strategy tree that was costed; empty for a flat strategy."""
    variants: tuple[Variant, ...] = ()
    """Strategies with the same degrees within the prediction error."""
    unit: str = "token"
    """Unit of work: token, image or sample."""
    facts: "SplitFacts | None" = None
    """Facts of rows of operator graphs."""
    precision: str | None = None
    """Training precision, if the rows of a leaderboard differ in it; None: the request's precision."""
    watts_per_gpu: float | None = None
    """Electric power of a device on average over the step; None if the device's power limit is unknown."""

    @property
    def short_unit(self) -> str:
        """The unit of work in column heads, like ``tok``."""
        return SHORT_UNITS.get(self.unit, self.unit)

    @property
    def graph(self) -> "SplitFacts":
        """The facts of a row of an operator graph."""
        assert self.facts is not None
        return self.facts

    @property
    def name(self) -> str:
        """Name of the costed strategy in outputs."""
        return self.tree or str(self.strategy)

    @property
    def variant(self: "Row[Strategy]") -> Variant:
        """The row as a variant of another."""
        return Variant(
            strategy=self.strategy,
            step_time_s=self.step_time_s,
            peak_memory_gib=self.peak_memory_gib,
            oom_risk=self.oom_risk,
        )

    @property
    def train_gpu_hours(self) -> float | None:
        """GPU-hours of the whole training; None if its length is unknown."""
        return None if self.train_days is None else 24 * self.train_days * self.gpus

    @property
    def joules_per_unit(self) -> float | None:
        """Electric energy of the devices per token or sample; None if their power is unknown."""
        return None if self.watts_per_gpu is None else self.watts_per_gpu / self.throughput_per_gpu

    @property
    def train_mwh(self) -> float | None:
        """Electric energy of the devices for the whole training; None if length or power is unknown."""
        if self.train_days is None or self.watts_per_gpu is None:
            return None
        return self.train_days * SECONDS_PER_DAY * self.gpus * self.watts_per_gpu / JOULES_PER_MWH

    @property
    def energy_text(self) -> str:
        """The energy of the whole training as the end of a line; empty if unknown."""
        if self.train_mwh is None:
            return ""
        return f", {self.train_mwh:,.1f} MWh of the GPUs ({SITE * self.train_mwh:,.1f} with hosts, network and cooling)"

    @property
    def range_text(self) -> str:
        """The interval relative to the step time, like ``-7..+26%``; empty without an interval."""
        if self.step_time_low_s is None or self.step_time_high_s is None:
            return ""
        low, high = (100 * (bound / self.step_time_s - 1) for bound in (self.step_time_low_s, self.step_time_high_s))
        return f"{low:+.0f}..{high:+.0f}%"

    @property
    def risk_text(self) -> str:
        """The OOM risk and its source; empty if it is small or the row does not fit."""
        if MAY_NOT_FIT_MARK in self.marks:
            return f"OOM risk {self.oom_risk:.0%}, by the calibration"
        if TIGHT_MARK in self.marks:
            return f"OOM risk {self.oom_risk:.0%}, from measured runs at this predicted peak"
        low, high, limit = self.peak_memory_low_gib, self.peak_memory_high_gib, self.memory_limit_gib
        if low is None or high is None or high <= limit or not self.fits:
            return ""
        return f"OOM risk {chance_above(limit, low, high):.0%}: the 80% range of the peak passes {limit:.1f} GiB"

    @property
    def lacks_launch_file(self) -> bool:
        """Whether no format of the framework can express the strategy."""
        return any(mark.startswith(NO_LAUNCH_MARK) for mark in self.marks)

    @property
    def excess_gib(self) -> float:
        """GiB by which the peak exceeds the device's memory; negative if the row fits."""
        return self.peak_memory_gib - self.memory_limit_gib

    def plot(self) -> Picture:
        """Draw the step and the memory as bars of their parts."""
        bars = bar_html("step", self.breakdown_s, self.step_time_s)
        full = max(self.memory_limit_gib, self.peak_memory_gib)
        return Picture(f"<div>{bars}{bar_html('memory', self.memory_gib, full)}</div>")

    def _repr_html_(self) -> str:
        """Return the HTML of a notebook: figures, and bars of the parts of step and memory."""
        return row_html(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data, without fields of a calibration if there is none."""
        names = [field.name for field in dataclasses.fields(Row) if field.name not in ("tree", "unit", "facts")]
        unit = plain_unit(self.unit)
        data = {PER_UNIT.get(name, name).format(unit): getattr(self, name) for name in names}
        data |= {"strategy": self.name, "breakdown_s": dict(self.breakdown_s), "memory_gib": dict(self.memory_gib)}
        if self.step_time_low_s is None:
            for name in ("interval_level", "step_time_low_s", "step_time_high_s", "evidence", "same_as_rank"):
                del data[name]
        elif self.evidence is not None:
            data["evidence"] = self.evidence.to_json()
        if self.peak_memory_low_gib is None:
            for name in ("peak_memory_low_gib", "peak_memory_high_gib"):
                del data[name]
        for name in ("goodput", "precision"):
            if data[name] is None:
                del data[name]
        data |= {"marks": list(self.marks), "train_gpu_hours": self.train_gpu_hours}
        data |= {f"joules_per_{unit}": self.joules_per_unit, "train_mwh": self.train_mwh}
        data["variants"] = [variant.to_json() for variant in self.variants]
        return data if self.facts is None else data | self.facts.to_json() | {"unit": self.unit}


AnyRow: TypeAlias = "Row[AnyStrategy]"
"""A row of a model of any kind."""
R = TypeVar("R", bound=AnyRow)
"""Rows of one kind of models."""


def plain_unit(unit: str) -> str:
    """Return the name of a unit in plain data: images are samples."""
    return unit if unit == "token" else "sample"


PER_UNIT: Mapping[str, str] = {
    "throughput": "{}s_per_s",
    "throughput_per_gpu": "{}s_per_s_per_gpu",
    "usd_per_million": "cost_usd_per_million_{}s",
}
"""Fields of a row whose names in plain data contain the unit."""


def rows_of(
    context: AnyContext,
    strategies: Sequence[S],
    *,
    usd_per_gpu_hour: float | None = None,
    score: Scorer = simulator_score,
) -> tuple[Row[S], ...]:
    """Score legal strategies and return their rows in the given order."""
    if not strategies:
        return ()
    scores = score(context, kind_of(context).table(context, strategies))
    return rows_from(context, strategies, scores, usd_per_gpu_hour=usd_per_gpu_hour)


def rows_from(
    context: AnyContext,
    strategies: Sequence[S],
    scores: ScoreTable,
    *,
    usd_per_gpu_hour: float | None = None,
) -> tuple[Row[S], ...]:
    """Return a row for each strategy from its row of ``scores``."""
    kind = kind_of(context)
    table = kind.table(context, strategies)
    facts = kind.facts(context, table, scores)
    return tuple(
        _row(context, "", int(gpus), (strategy,), scores, row, usd_per_gpu_hour, facts[row])
        for row, (strategy, gpus) in enumerate(zip(strategies, table.column("gpus"), strict=True))
    )


def tree_row(
    context: AnyContext,
    tree: str,
    gpus: int,
    strategies: Sequence[S],
    scores: ScoreTable,
    *,
    usd_per_gpu_hour: float | None = None,
) -> Row[S]:
    """Return the row of a strategy tree over the settings of flat ``strategies``.

    ``scores`` has one row. ``tree``: its name; empty for a flat strategy.
    """
    return _row(context, tree, gpus, strategies, scores, 0, usd_per_gpu_hour, None)


def _row(
    context: AnyContext,
    tree: str,
    gpus: int,
    strategies: Sequence[Any],
    scores: ScoreTable,
    row: int,
    price: float | None,
    facts: "SplitFacts | None",
) -> Row[Any]:
    """``strategies``: the strategies marked; the first is a flat row's strategy. ``price``: USD per device and hour."""
    work, device = kind_of(context).work(context, gpus), context.cluster.device
    step_s = float(scores.step_time_s[row])
    per_s = work.units / step_s
    usd_per_hour = None if price is None else price * gpus
    train_s = None if work.total is None else work.total / per_s
    peak_gib, fits = float(scores.peak_memory_bytes[row]) / GIB, bool(scores.fits[row])
    limit_bytes = context.memory_limit_bytes if scores.limit_bytes is None else float(scores.limit_bytes[row])
    if scores.oom_risk is None:
        risk, risky = oom_risk(float(scores.peak_memory_bytes[row]) / device.memory_bytes), TIGHT_MARK
    else:
        risk, risky = float(scores.oom_risk[row]), MAY_NOT_FIT_MARK
    memory_marks = ("does not fit",) if not fits else (risky,) if risk > RISKY else ()
    mfu = work.flops / (step_s * gpus * device.peak(work.precision))
    breakdown_s = {part: float(scores.time_s[part][row]) for part in _shown(scores.time_s, TIME_PARTS)}
    limit_w = power_limit_w(context.cluster)
    return Row(
        rank=None,
        strategy=strategies[0],
        tree=tree,
        gpus=gpus,
        step_time_s=step_s,
        throughput=per_s,
        throughput_per_gpu=per_s / gpus,
        mfu=mfu,
        fits=fits,
        peak_memory_gib=peak_gib,
        memory_limit_gib=limit_bytes / GIB,
        oom_risk=risk,
        allocated_memory_gib=float(scores.allocated_bytes[row]) / GIB,
        peak_stage=int(scores.peak_stage[row]),
        breakdown_s=breakdown_s,
        memory_gib={
            part: float(scores.memory_bytes[part][row]) / GIB for part in _shown(scores.memory_bytes, MEMORY_PARTS)
        },
        cost_usd_per_hour=usd_per_hour,
        usd_per_million=None if usd_per_hour is None else usd_per_hour / SECONDS_PER_HOUR / per_s * 1e6,
        train_days=None if train_s is None else train_s / SECONDS_PER_DAY,
        train_cost_usd=(None if train_s is None or usd_per_hour is None else train_s / SECONDS_PER_HOUR * usd_per_hour),
        marks=tuple(dict.fromkeys(mark for one in strategies for mark in _marks(context, one, memory_marks, mfu))),
        unit=work.unit,
        facts=facts,
        watts_per_gpu=None if limit_w is None else mean_power_w(limit_w, breakdown_s),
    )


def _shown(parts: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    """Return the names of parts in display order; operator graphs have a separate order."""
    return list(order if set(order) == set(parts) else parts)


def _marks(context: AnyContext, strategy: AnyStrategy, memory_marks: Sequence[str], mfu: float) -> tuple[str, ...]:
    """Return the warnings on a strategy."""
    if not (isinstance(strategy, Strategy) and isinstance(context, Context)):
        return tuple(memory_marks)
    cluster = context.cluster
    use = rack_use(cluster, strategy)
    domain = max(cluster.scale_up_size if use is None else use.domain, cluster.devices_per_node)
    name = "nodes" if cluster.scale_up_size <= cluster.devices_per_node else "scale-up domains"
    marks = []
    if strategy.tp > domain or domain % strategy.tp:
        marks.append(f"tp crosses {name}")
    elif strategy.tp * strategy.cp > domain and strategy.cp > 1:
        marks.append(f"cp crosses {name}")
    if strategy.ep * strategy.etp > domain:
        marks.append(f"ep crosses {name}")
    if use is not None and use.racks > 1 and use.used < cluster.scale_up_size:
        marks.append(f"{use.used} of each {cluster.scale_up_size} GPUs in {use.racks:,} racks")
    marks += memory_marks
    if mfu > PLAUSIBLE_MFU[context.moe]:
        marks.append("MFU above anything published")
    return tuple(marks)
