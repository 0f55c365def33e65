"""The figures that were asked for, beside those reached."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forerun.search.measured.validate import MeasuredRun, Metrics, Predictions, metrics_of

LOW_TRUST = ("libai", "mcore_functional_tests")
"""Tables whose GPU type is not stated, or whose models are bound by launch latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Figures asked for, in per cent (tau: none); None where nothing is. ``wide``: pairs more than 25 % apart, else
    5 %."""

    title: str
    judged: Callable[[MeasuredRun], bool]
    median_pct: float | None = None
    tau: float | None = None
    pairs_pct: float | None = None
    wide: bool = True
    regret_pct: float | None = None
    memory_pct: float | None = None
    recall_pct: float | None = None
    specificity_pct: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: what was asked for and what was reached; ``miss``: how far it falls short (zero where it is met)."""

    name: str
    target: float
    reached: float | None
    miss: float


def _of(*tables: str) -> Callable[[MeasuredRun], bool]:
    return lambda run: run.file in tables


def dense(run: MeasuredRun) -> bool:
    """Whether a run is a dense transformer with a stated strategy on a stated device."""
    return not run.context.moe and "recompute" not in run.filled and run.file not in LOW_TRUST


def no_test(run: MeasuredRun) -> bool:
    """Whether a run is no functional test of a tiny model."""
    return run.file != "mcore_functional_tests"


def _dense_run(run: MeasuredRun) -> bool:
    return no_test(run) and not run.context.moe


def _experts_run(run: MeasuredRun) -> bool:
    return no_test(run) and run.context.moe


def _fully_sharded(run: MeasuredRun) -> bool:
    return run.context.framework.name in ("fsdp", "torchtitan")


def _slow_network(run: MeasuredRun) -> bool:
    return run.file == "lucie" or (run.file == "bigscience" and run.cells["device"].startswith("a100"))


_PEAKS, _VERDICTS = {"memory_pct": 8.0}, {"recall_pct": 92.0, "specificity_pct": 92.0}

TARGETS = (
    Target(title="vtrain_multi", judged=_of("vtrain_multi"), median_pct=5, tau=0.80, pairs_pct=95, wide=False,
           regret_pct=1),
    Target(title="aleph_alpha_layouts", judged=_of("aleph_alpha_layouts"), median_pct=6, tau=0.80, pairs_pct=94,
           wide=False, regret_pct=1, **_VERDICTS),
    Target(title="hf_ultrascale", judged=_of("hf_ultrascale"), median_pct=10, tau=0.70, pairs_pct=96, regret_pct=8,
           **_PEAKS, **_VERDICTS),
    Target(title="lucie, bigscience (A100)", judged=_slow_network, median_pct=10, tau=0.65, pairs_pct=92,
           regret_pct=3),
    Target(title="simumax_b200", judged=_of("simumax_b200"), median_pct=7, **_PEAKS),
    Target(title="korthikanti2022", judged=_of("korthikanti2022"), median_pct=7),
    Target(title="llm_foundry", judged=_of("llm_foundry"), median_pct=7),
    Target(title="mlperf_llm", judged=_of("mlperf_llm"), median_pct=7),
    Target(title="megatron_bridge (recompute unstated)", judged=_of("megatron_bridge"), median_pct=15),
    Target(title="all but CI tests", judged=no_test, median_pct=4.5, tau=0.80, pairs_pct=96.5, wide=False,
           regret_pct=2.5),
    Target(title="of these dense", judged=_dense_run, median_pct=3.8, tau=0.80, pairs_pct=96.5, wide=False,
           regret_pct=2.5),
    Target(title="of these with experts", judged=_experts_run, median_pct=12),
    Target(title="FSDP", judged=_fully_sharded, memory_pct=12.0),
    Target(title="all dense transformers, strategy stated", judged=dense, median_pct=8, tau=0.72, pairs_pct=95,
           regret_pct=4, **_PEAKS),
)  # fmt: skip
"""What was asked of the defaults: first of single sources, then of runs that nobody had seen."""

_FIGURES: tuple[tuple[str, str, Callable[[Metrics, bool], float | None], float], ...] = (
    ("median %", "median_pct", lambda m, wide: m.median_ape_pct, -1.0),
    ("tau", "tau", lambda m, wide: m.kendall_tau, 1.0),
    ("pairs %", "pairs_pct", lambda m, wide: m.wide_pair_order_pct if wide else m.pair_order_pct, 1.0),
    ("regret %", "regret_pct", lambda m, wide: m.regret1_pct, -1.0),
    ("memory %", "memory_pct", lambda m, wide: m.memory_median_ape_pct, -1.0),
    ("OOM recall %", "recall_pct", lambda m, wide: m.oom_recall_pct, 1.0),
    ("OOM specificity %", "specificity_pct", lambda m, wide: m.oom_specificity_pct, 1.0),
)
"""Heading, field of ``Target``, figure reached, and whether more (+1) or less (-1) is better."""


def reached(predictions: Predictions) -> list[tuple[Target, int, list[Figure]]]:
    """Return every target that has rows, the rows, and its figures."""
    result = []
    for target in TARGETS:
        rows = [row for row, run in enumerate(predictions.runs) if target.judged(run)]
        m = metrics_of(predictions, rows)
        if not m.rows:
            continue
        figures = []
        for name, field, figure, sign in _FIGURES:
            asked = getattr(target, field)
            if asked is not None:
                got = figure(m, target.wide)
                miss = 0.0 if got is None else max(sign * (asked - got), 0.0)
                figures.append(Figure(name=name, target=asked, reached=got, miss=miss))
        result.append((target, m.rows, figures))
    return result


def markdown(found: Sequence[tuple[Target, int, list[Figure]]]) -> list[str]:
    """Return the targets as lines of a page."""
    met = sum(figure.miss == 0.0 and figure.reached is not None for _, _, figures in found for figure in figures)
    count = sum(len(figures) for _, _, figures in found)
    names = [name for name, _, _, _ in _FIGURES]
    lines = [f"{met} of {count} figures are met. A cell reads: reached (asked for); **bold** where missed, and by how"]
    lines += [
        "much. Pairs are those more than 25 % apart, for vtrain_multi, aleph_alpha_layouts and every run 5 %.",
        "",
    ]
    lines += ["| rows of | rows | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for target, rows, figures in found:
        cells = {figure.name: _cell(figure) for figure in figures}
        lines.append(f"| {target.title} | {rows} | " + " | ".join(cells.get(name, "") for name in names) + " |")
    return lines


def _cell(figure: Figure) -> str:
    digits = 2 if figure.name == "tau" else 1
    if figure.reached is None:
        return f"- ({figure.target:g})"
    shown = f"{figure.reached:.{digits}f} ({figure.target:g})"
    return f"**{shown}, {figure.miss:.{digits}f} short**" if figure.miss else shown


def to_json(found: Sequence[tuple[Target, int, list[Figure]]]) -> list[dict[str, Any]]:
    """Return the targets as plain data."""
    return [
        {"rows_of": target.title, "rows": rows, "figures": [asdict(figure) for figure in figures]}
        for target, rows, figures in found
    ]
