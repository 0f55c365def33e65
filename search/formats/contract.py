"""Contract of configuration formats: a launch is written as files, files are read as a strategy.

A format is a value in the table of ``forerun.search.formats.table``. It states its limits as data, so that a launch it
cannot express is refused with every reason and with the nearest launch that it can.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from forerun.search.formats.interpolation import resolved
from forerun.search.formats.job import NO_JOB, Job
from forerun.search.formats.shell import NOTHING, Given
from forerun.spaces.documents import Document, parse_document
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import visible
from forerun.spaces.models.model import Model
from forerun.spaces.models.tuning import Tuning, tuning_of
from forerun.spaces.opgraph import GraphModel
from forerun.spaces.strategies import Strategy
from forerun.spaces.workload import Workload

Files = Mapping[str, str]
"""Texts by file name."""

SCRIPTS = (".sh", ".sbatch", ".slurm", ".bash")
"""Endings of launch scripts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One training run to write down: ``strategy`` of ``model`` over nodes of ``devices_per_node`` devices.

    ``model``: a ``Model``, or a ``GraphModel``, whose split of samples is written as replicas (``exporting``).
    ``switches``: settings of the software that were predicted (those not named: the framework's defaults). ``name`` is
    free text that the user gave; it reaches files only quoted, or reduced to harmless characters. ``rack_devices``:
    devices of a rack whose nodes share the fast fabric (0: a node has a fabric of its own), ``pod_devices``: of a pod
    of TPUs (0: there is none), ``vendor``: who makes the devices, ``device``: their name in the
    catalogue ("": not known). ``job``: where the files go and what
    the queue is asked for.
    """

    strategy: Strategy
    model: Any
    workload: Workload
    devices_per_node: int
    name: str = "forerun"
    switches: Mapping[str, str] = field(default_factory=dict)
    rack_devices: int = 0
    pod_devices: int = 0
    vendor: str = ""
    device: str = ""
    job: Job = NO_JOB

    @property
    def tuning(self) -> Tuning:
        """Trained parts of the model."""
        return tuning_of(self.model) if isinstance(self.model, Model) else Tuning()

    @property
    def packed(self) -> bool:
        """Whether sequences are packed of documents that do not attend to each other."""
        tokens = self.workload.document_tokens
        return tokens is not None and tokens < self.workload.seq_len

    @property
    def microbatches(self) -> int:
        """Microbatches of one step on every replica."""
        return self.workload.global_batch // (self.strategy.dp * self.strategy.mbs)

    @property
    def nodes(self) -> int:
        """Nodes that the launch occupies, all with the same number of devices."""
        return self.strategy.devices // self.devices_used_per_node

    @property
    def devices_used_per_node(self) -> int:
        """Devices started on each node: as many as it has, or the most that give every node the same number."""
        most = min(self.devices_per_node, self.strategy.devices)
        return next(n for n in range(most, 0, -1) if self.strategy.devices % n == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something a format cannot express.

    ``broken`` says whether a launch asks for it, ``reason`` why not, in words; ``fix`` returns the nearest launch
    without it (None: there is none).
    """

    broken: Callable[[Launch], bool]
    reason: Callable[[Launch], str]
    fix: Callable[[Launch], Launch] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Measured steps of a training log: the median of ``counted`` steps after the first ``skipped`` ones.

    ``low_s`` and ``high_s`` are the tenth and the ninetieth percentile of the counted steps.
    """

    step_time_s: float
    low_s: float
    high_s: float
    counted: int
    skipped: int
    tflops_per_gpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Content of a configuration.

    ``workload`` and ``model`` hold the facts found, by forerun's names; ``switches`` the settings of the software, what
    runs without a flag included; ``unmodelled`` those known to change speed or memory that no switch stands for;
    ``other`` those that the format is known to have and that do neither; ``unknown`` all remaining ones. No setting of
    the file is in none of them.
    ``defaults`` names each value that the file left open, ``notes`` what a strategy cannot say of the run.
    """

    format: str
    version: str
    strategy: Strategy
    workload: Mapping[str, Any]
    model: Mapping[str, Any]
    other: Mapping[str, Any]
    unknown: Mapping[str, Any]
    switches: Mapping[str, str] = field(default_factory=dict)
    unmodelled: Mapping[str, Any] = field(default_factory=dict)
    defaults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    measured: Steps | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """A file to read: ``beside`` are launch scripts given with it, ``others`` further documents, ``gpus`` the number of
    devices where the user stated it, ``entry`` which of several configurations of the file is meant, ``given`` what a
    script is started with."""

    name: str
    text: str
    beside: Files = field(default_factory=dict)
    others: Files = field(default_factory=dict)
    gpus: int | None = None
    entry: str | None = None
    given: Given = NOTHING

    @property
    def scripts(self) -> Files:
        """Return the launch scripts, the file itself among them where it is one, or a list of arguments."""
        return {**self.beside, self.name: self.text} if self.suffix in ("", ".txt", *SCRIPTS) else self.beside

    @property
    def suffix(self) -> str:
        """Ending of the file name in lower case, with its dot."""
        return PurePath(self.name).suffix.lower()

    def document(self) -> Document:
        """Return the file as YAML, or as JSON where its name ends so.

        Raises:
            RequestError: it is neither.
        """
        return parse_document(self.text, source=self.name)

    def top_level(self) -> Mapping[str, Any]:
        """Return the mapping that a document is.

        Raises:
            RequestError: the file cannot be read or is no mapping.
        """
        data = self.document().data
        if not isinstance(data, dict):
            raise RequestError(f"{self.name}: a configuration is a mapping of keys to values")
        return resolved(data, self.given.variables) if "${" in self.text else data


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format. ``version`` names what it targets; ``main`` is the name of its principal file.

    ``joins``: a run may be given several such files together. ``graphs``: it also writes launches of operator graphs,
    ``adapters`` of low-rank adapters, ``parts`` of models with frozen parts.
    ``framework`` is the profile whose laws a launch must keep (None: forerun has no profile that fits), ``vendors``
    without one: makers of the devices that run what it starts (empty: all). ``also``: profiles whose launches it writes
    without being theirs alone. ``writes``: switches that it has words for (None: all that its framework has, none
    without a framework). ``packs``: a pattern of what keeps attention inside the documents of a packed sequence in
    its files (empty: it attends to all of a sequence).
    ``write`` returns the files of a launch that breaks none of ``limits`` (None: forerun only reads this format);
    ``parse`` reads a file; ``recognise`` says whether a file looks like this format and never raises RequestError for a
    file of another kind.
    """

    name: str
    version: str
    title: str
    main: str
    limits: tuple[Limit, ...]
    write: Callable[[Launch], Files] | None
    parse: Callable[[LaunchFile], Imported]
    recognise: Callable[[LaunchFile], bool]
    framework: str | None = None
    vendors: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    writes: Collection[str] | None = None
    packs: str = ""
    joins: bool = False
    graphs: bool = False
    adapters: bool = False
    parts: bool = False

    def express(self, launch: Launch) -> Files:
        """Return the files that start ``launch``, by name.

        Raises:
            RequestError: the format has no word for part of the launch; the text has every reason and the nearest
                strategy that it can express.
        """
        if self.write is None:
            raise RequestError(f"forerun reads {self.name} and does not write it; export to another format")
        if isinstance(launch.model, GraphModel) and not self.graphs:
            raise RequestError(f"{self.title} ({self.name}) trains transformers, and {launch.model.name} is none")
        tuning = launch.tuning
        if (tuning.rank and not self.adapters) or (tuning.frozen and not self.parts):
            raise RequestError(f"{self.title} ({self.name}) trains all of a model, and not {tuning} as searched")
        if launch.packed and not self.packs:
            raise RequestError(
                f"{self.title} ({self.name}) has no attention inside documents alone, which --documents predicted; "
                "search without --documents, or export to a format that masks them (megatron-lm, forerun)"
            )
        try:
            broken = [limit for limit in self.limits if limit.broken(launch)]
        except RequestError as error:  # of a model whose layers the limits are not about
            raise RequestError(f"{self.title} ({self.name}) cannot express {launch.model.name}: {error}") from None
        if not broken:
            return self.write(dataclasses.replace(launch, name=visible(launch.name)))
        reasons = "; ".join(dict.fromkeys(limit.reason(launch) for limit in broken))
        near = self.nearest(launch)
        if near is None:
            raise RequestError(f"{self.title} ({self.name}) cannot express {launch.strategy}. {reasons}")
        changed = [str(near.strategy)]
        if near.workload.precision != launch.workload.precision:
            changed.append(f"precision {near.workload.precision}")
        if near.strategy.devices != launch.strategy.devices:
            changed.append(f"{near.strategy.devices} GPUs")
        held = {name: setting for name, setting in near.switches.items() if launch.switches.get(name) != setting}
        changed += [f"--with {name}={setting}" for name, setting in held.items() if setting != "0"]
        raise RequestError(
            f"{self.title} ({self.name}) cannot express {launch.strategy}. {reasons}; "
            f"nearest that it can express: {', '.join(changed)}"
        )

    def nearest(self, launch: Launch) -> Launch | None:
        """Return the launch that mending one broken limit after the other leads to; None where one has no fix."""
        for _ in range(4 * len(self.limits)):
            broken = next((limit for limit in self.limits if limit.broken(launch)), None)
            if broken is None:
                return launch
            if broken.fix is None:
                return None
            launch = broken.fix(launch)
        return None

    def read(self, source: LaunchFile) -> Imported:
        """Read a file.

        Raises:
            RequestError: the file is damaged, contradicts itself, or says nothing that is a strategy.
        """
        return self.parse(source)
