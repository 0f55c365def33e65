"""Contract of configuration formats: writing of a launch as files, and reading of files as a strategy.

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
from forerun.search.formats.shell import NOTHING, SCRIPTS, Given, Script, read_script
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One training run to write: ``strategy`` of ``model`` over nodes of ``devices_per_node`` devices.

    ``model``: a ``Model``, or a ``GraphModel``, whose split of samples is written as replicas (``exporting``).
    ``switches``: predicted settings of the software (others: the framework's defaults). ``name`` is free user text,
    written to files only quoted or reduced to harmless characters. ``rack_devices``: devices of a rack whose nodes
    share the fast fabric (0: each node has a separate fabric), ``pod_devices``: devices of a pod of TPUs (0: no pod),
    ``vendor``: maker of the devices, ``device``: their name in the catalogue ("": unknown). ``job``: folder of the
    files and options of the queue.
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
        """Number of nodes, all with the same number of devices."""
        return self.strategy.devices // self.devices_used_per_node

    @property
    def devices_used_per_node(self) -> int:
        """Devices started on each node: all of them, or the largest equal number."""
        most = min(self.devices_per_node, self.strategy.devices)
        return next(n for n in range(most, 0, -1) if self.strategy.devices % n == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something a format cannot express.

    ``broken``: whether a launch violates the limit; ``reason``: its text; ``fix`` returns the nearest launch without
    the violation (None: no fix).
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

    ``workload`` and ``model`` have the facts by forerun's names; ``switches`` the settings of the software, including
    defaults; ``unmodelled`` settings that change speed or memory without a switch; ``other`` known settings without
    such an effect; ``unknown`` all remaining settings. Every setting of the file is in one of these. ``defaults`` names
    each value missing in the file, ``notes`` facts that a strategy cannot express.
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
    """A file to read.

    ``beside``: launch scripts given with it, ``others``: further documents, ``gpus``: the user's number of devices,
    ``entry``: name of one of several configurations in the file, ``given``: arguments and environment of a script,
    ``parsed``: scripts that were read, shared with copies of this value.
    """

    name: str
    text: str
    beside: Files = field(default_factory=dict)
    others: Files = field(default_factory=dict)
    gpus: int | None = None
    entry: str | None = None
    given: Given = NOTHING
    parsed: dict[tuple[str, str, bool], Script] = field(default_factory=dict, repr=False, compare=False)

    @property
    def scripts(self) -> Files:
        """Return the launch scripts, including the file itself if it is a script or a list of arguments."""
        return {**self.beside, self.name: self.text} if self.suffix in ("", ".txt", *SCRIPTS) else self.beside

    @property
    def suffix(self) -> str:
        """Ending of the file name in lower case, with its dot."""
        return PurePath(self.name).suffix.lower()

    def script(self, name: str | None = None) -> Script:
        """Read this file, or the launch script ``name`` of the run, as a script; each is read once.

        Raises
        ------
        RequestError
            The script cannot be read.
        """
        name = self.name if name is None else name
        text = self.text if name == self.name else self.beside[name]
        key = (name, text, self.given.bare)
        if key not in self.parsed:
            self.parsed[key] = read_script(text, name, self.given)
        return self.parsed[key]

    def document(self) -> Document:
        """Return the file as YAML, or as JSON if its name ends in ``.json``.

        Raises
        ------
        RequestError
            The file is neither.
        """
        return parse_document(self.text, source=self.name)

    def top_level(self) -> Mapping[str, Any]:
        """Return the top-level mapping of a document.

        Raises
        ------
        RequestError
            The file cannot be read or is not a mapping.
        """
        data = self.document().data
        if not isinstance(data, dict):
            raise RequestError(f"{self.name}: a configuration is a mapping of keys to values")
        return resolved(data, self.given.variables) if "${" in self.text else data


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format. ``version`` is the targeted software version; ``main`` is the name of its principal file.

    ``joins``: a run may be given several such files together. ``graphs``: it also writes launches of operator graphs;
    ``adapters``: with low-rank adapters; ``parts``: with frozen parts. ``framework`` is the profile whose laws a launch
    must satisfy (None: no such profile), ``vendors`` without a profile: supported makers of devices (empty: all).
    ``also``: further profiles whose launches it writes. ``predicted_as``: profile of the software that it starts, where
    it writes none of that profile's switches. ``writes``: switches that it can write (None: all of its
    framework, or none without a framework). ``packs``: pattern in its files of attention inside packed documents
    (empty: attention over whole sequences). ``write`` returns the files of a launch within ``limits`` (None: the format
    is only read); ``parse`` reads a file; ``recognise`` says whether a file looks like this format and never raises
    RequestError for a file of another kind.
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
    predicted_as: str | None = None
    writes: Collection[str] | None = None
    packs: str = ""
    joins: bool = False
    graphs: bool = False
    adapters: bool = False
    parts: bool = False

    def express(self, launch: Launch) -> Files:
        """Return the files that start ``launch``, by name.

        Raises
        ------
        RequestError
            The format cannot express part of the launch; the text has every reason and the nearest expressible
            strategy.
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
        except RequestError as error:  # of a model without the layers of the limits
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
        dropped = {name: setting for name, setting in near.switches.items() if launch.switches.get(name) != setting}
        changed += [f"--with {name}={setting}" for name, setting in dropped.items() if setting != "0"]
        raise RequestError(
            f"{self.title} ({self.name}) cannot express {launch.strategy}. {reasons}; "
            f"nearest that it can express: {', '.join(changed)}"
        )

    def nearest(self, launch: Launch) -> Launch | None:
        """Return the launch with its broken limits fixed in turn; None if one has no fix."""
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

        Raises
        ------
        RequestError
            The file is damaged, contradicts itself, or has no strategy.
        """
        return self.parse(source)
