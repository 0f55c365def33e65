"""Verbs of the command line as functions with a keyword for each field of a request."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from forerun.results import SearchResult, SimulationResult
from forerun.search.request.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from forerun.search.answer.explain.comparison import Comparison
    from forerun.search.answer.explain.explain import Explanation
    from forerun.search.request.scorer import Progress
    from forerun.search.tune.summary import TuneSummary
    from forerun.search.workers import Choice
    from forerun.spaces.opgraph.batch import PerDevice
    from forerun.spaces.strategies import Strategy


class TrainingJob(TypedDict, total=False):
    """A training and its machine; ``cluster`` and ``global_batch`` are required."""

    cluster: Required[str]
    """Catalogue name or file (YAML, NCCL topology XML, text of ``nvidia-smi topo -m``)."""
    global_batch: "Required[int | str | PerDevice]"
    """Sequences per step, ``"4M tokens"``, or samples of each GPU (``"64/gpu"``)."""
    seq_len: int | str | None
    """Tokens per sequence (8192 or ``"8k"``); operator graphs have none."""
    gpus: int | str | None
    """Number of GPUs, or a range (``"64..512"``)."""
    usd_per_gpu_hour: float | str | None
    """Price of one GPU for one hour, in USD, or SkyPilot's price in a cloud (``"sky:aws"``)."""
    precision: str | None
    """``bf16``, ``fp8``, ...: a precision of the device."""
    framework: str | None
    """Training software: a name, ``NAME@VERSION`` or a file."""
    switches: Mapping[str, str]
    """Settings of the software by name (``{"dispatcher": "deepep"}``)."""
    tokens: float | str | None
    """Length of the whole training, in tokens (``"15T"``)."""
    goodput: str | None
    """Facts about failures and checkpoints (``"failures=2e-5,recovery=10min"``), or ``""`` for typical ones."""
    moe_imbalance: float | None
    """Tokens of the busiest expert rank over the mean, 1.0 or more."""
    lora: str | None
    """Adapters: ``RANK`` or ``RANK:PRODUCTS``."""
    freeze: str | None
    """Frozen parts."""
    documents: str | None
    """Tokens of a packed document, or a file with a length per line."""
    profile: str | None
    """File of ``forerun profile``."""
    calibration: str | None
    """File of ``forerun calibrate``."""
    ignored_config_fields: tuple[str, ...]
    """Fields of a Hugging Face configuration that do not change the cost."""
    seconds_per_sample: float | None
    """Operator graphs: measured forward and backward pass of one sample, in seconds."""
    optimizer: str | None
    """Operator graphs: the optimizer."""
    allow_generic: bool
    """Operator graphs: imported operators without a rule are costed by their bytes and operations."""
    shapes: tuple[str, ...]
    """Operator graphs: extents of inputs that an ONNX file leaves open (``"x=3x640x640"``)."""
    inference: bool
    """Operator graphs: forward passes alone."""


class SearchJob(TrainingJob, total=False):
    """A job whose strategies are ranked."""

    usd_per_hour: float | None
    """Most money per hour, in USD; needs ``usd_per_gpu_hour``."""
    all_variants: bool
    """Whether strategies with equal degrees have separate rows."""
    train_within_s: float | None
    """Longest time of the training of ``tokens``, in seconds."""
    train_usd: float | None
    """Most money that the training may cost, in USD."""
    oom_risk: float | None
    """Highest risk of running out of memory, 0 to 1."""
    objective: str | None
    """``throughput``, ``cost``, ``gpus`` or ``headroom``; several, with commas, for their Pareto front."""
    top: int | None
    """Most rows to return."""
    overrides: Mapping[str, Sequence[object]]
    """Choices by axis (``{"tp": [1, 2, 4]}``)."""


class TuningJob(SearchJob, total=False):
    """A job whose best strategies are launched as short runs; ``top`` and ``all_variants`` are not used."""

    runs: int
    """Most runs, 4 by default."""
    steps: int
    """Steps of a run, 20 by default."""
    trainer: str | None
    """Your program and its arguments, in place of the framework's."""
    gpu_hours: float | None
    """Most GPU-hours of all runs."""
    resume: bool
    """Whether a tuning in ``out`` is continued."""


def search(
    model: str, *, workers: "Choice | None" = None, progress: "Progress | None" = None, **job: Unpack[SearchJob]
) -> SearchResult:
    """Rank every legal way to split a training over a cluster.

    Parameters
    ----------
    model
        Catalogue name or file (YAML, ``config.json``, ``.onnx``, ``.pt2``, ``.net``).
    workers
        Kind and number of workers; by default this process alone.
    progress
        Function that is called as candidates are scored.
    **job
        Fields of `SearchJob`.

    Raises
    ------
    RequestError
        The request is wrong.
    NothingFeasible
        No strategy fits; the error names changes that would help.

    Examples
    --------
    >>> board = search("llama3-8b", cluster="dgx-h100", gpus=64, global_batch=256, seq_len="8k", top=3)
    >>> [row.rank for row in board.rows]
    [1, 2, 3]
    """
    from forerun.search.answer.searches import search_request

    return SearchResult.of(search_request(request_of(model, job), progress=progress, workers=workers))


def simulate(model: str, *, strategy: "str | Strategy", **job: Unpack[TrainingJob]) -> SimulationResult:
    """Predict step time and memory of one strategy.

    Parameters
    ----------
    model
        As for `search`.
    strategy
        Like ``"tp4 pp2 dp8 mbs1 zero1 sp"``.
    **job
        Fields of `TrainingJob`.

    Raises
    ------
    RequestError
        The request is wrong or the strategy illegal; the message names every violated law.

    Examples
    --------
    >>> job: TrainingJob = {"cluster": "dgx-h100", "global_batch": 256, "seq_len": 8192}
    >>> simulate("llama3-8b", strategy="tp2 dp32 mbs1 zero1 sp", **job).fits
    True
    """
    from forerun.search.api import simulate_setting
    from forerun.search.request.resolve import resolve

    setting = resolve(request_of(model, job))
    return SimulationResult.of(simulate_setting(setting, strategy), setting.to_json())


def explain(model: str, *, strategy: "str | Strategy", **job: Unpack[TrainingJob]) -> "Explanation":
    """Explain a strategy and its neighbours in one axis.

    Parameters
    ----------
    model
        As for `search`; a transformer.
    strategy
        Like ``"tp4 pp2 dp8 mbs1 zero1 sp"``.
    **job
        Fields of `TrainingJob`.

    Raises
    ------
    RequestError
        The request is wrong, the strategy illegal, or the model an operator graph.

    Examples
    --------
    >>> why = explain("llama3-8b", cluster="dgx-h100", global_batch=256, seq_len=8192, strategy="tp2 dp32 mbs1 sp")
    >>> all(change.added_s < 0 for change in why.helping())
    True
    """
    from forerun.search.answer.explain.explain import explain_strategy
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import legal_strategy

    setting = resolve(request_of(model, job))
    legal = legal_strategy(setting, strategy)
    return explain_strategy(setting.context, legal, usd_per_gpu_hour=setting.usd_per_gpu_hour)


def compare(
    model: str, *, first: "str | Strategy", second: "str | Strategy", **job: Unpack[TrainingJob]
) -> "Comparison":
    """Predict two strategies and their differences.

    Parameters
    ----------
    model
        As for `search`.
    first, second
        Strategies, like ``"tp4 pp2 dp8 mbs1 zero1 sp"``.
    **job
        Fields of `TrainingJob`.

    Raises
    ------
    RequestError
        The request is wrong or a strategy illegal.

    Examples
    --------
    >>> job = {"cluster": "dgx-h100", "global_batch": 256, "seq_len": 8192}
    >>> compare("llama3-8b", first="tp2 dp32 mbs1 sp", second="tp8 dp8 mbs1 sp", **job).second.fits
    True
    """
    from forerun.search.answer.explain.comparison import compare_strategies
    from forerun.search.request.resolve import resolve

    return compare_strategies(resolve(request_of(model, job)), first, second)


def tune(
    model: str,
    *,
    launcher: str,
    out: str | Path,
    approve: "Callable[[str], bool]",
    **job: Unpack[TuningJob],
) -> "TuneSummary":
    """Launch some of the best rows of a search as short runs, and measure the fastest.

    Parameters
    ----------
    model
        As for `search`; a transformer.
    launcher
        ``"local"``, ``"slurm"``, ``"ray"`` or ``"ray ADDRESS"``, ``"dry"``, or ``"command"`` and its template.
    out
        Folder of the runs.
    approve
        Function that is called with a description of a run before its launch, and returns whether to launch it.
    **job
        Fields of `TuningJob`.

    Returns
    -------
    TuneSummary
        ``best`` is the fastest run, ``document`` everything as plain data.

    Raises
    ------
    RequestError
        The request is wrong, or nothing can be launched.

    Examples
    --------
    >>> import tempfile
    >>> job: SearchJob = {"cluster": "dgx-h100", "gpus": 8, "global_batch": 64, "seq_len": 4096}
    >>> tune("llama3-8b", launcher="local", out=tempfile.mkdtemp(), approve=lambda plan: False, **job).stopped
    'you declined the next run'
    """
    from forerun.search.answer.searches import search_request
    from forerun.search.tune.candidates import CANDIDATES
    from forerun.search.tune.launchers import launcher_named
    from forerun.search.tune.request import TuningLimits, TuningRequest
    from forerun.search.tune.summary import Approval
    from forerun.search.tune.tuning import tune as run_tuning

    options: dict[str, Any] = dict(job)
    limits = TuningLimits(**{name: options.pop(name) for name in ("runs", "gpu_hours") if name in options})
    stated = {name: options.pop(name) for name in ("steps", "trainer", "resume") if name in options}
    tuning = TuningRequest(
        request=request_of(model, {**options, "top": CANDIDATES, "all_variants": True}),
        launcher=launcher_named(launcher.split(None, 1)),
        folder=Path(out),
        limits=limits,
        **stated,
    )
    return run_tuning(tuning, search_request, Approval(approve))


def request_of(model: str, job: Mapping[str, Any]) -> Request:
    """Return the request of a model and a job; texts such as ``"8k"`` become numbers.

    Raises
    ------
    RequestError
        A field is missing, unknown or cannot be read.
    """
    from dataclasses import fields

    from forerun.search.request.quantities import batch_of, token_count
    from forerun.spaces.errors import RequestError, unknown
    from forerun.spaces.units import parse_count

    known = {field.name for field in fields(Request)} - {"model", "user_defaults"}
    for name in job:
        if name not in known:
            raise unknown("keyword", name, sorted(known))
    for name in ("cluster", "global_batch"):
        if job.get(name) is None:
            raise RequestError(f"the keyword {name} is missing")
    stated = dict(job)
    if stated.get("seq_len") is not None:
        stated["seq_len"] = token_count(stated["seq_len"])
    stated["global_batch"] = batch_of(stated["global_batch"], stated.get("seq_len"))
    if stated.get("gpus") is not None:
        stated["gpus"] = str(stated["gpus"])
    if isinstance(stated.get("tokens"), str):
        stated["tokens"] = parse_count(stated["tokens"])
    return Request(model=model, **stated)
