"""Reader of Galvatron's layer-wise strategies.

Source: ``config2strategy`` of PKU-DAIR/Hetu-Galvatron 2.
"""

import re
from collections import Counter
from typing import Any

from forerun.search.formats.contract import Format, Imported, LaunchFile
from forerun.search.formats.devices import World, replicas
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.launcher_data import marked_by
from forerun.search.formats.layers import split_of
from forerun.search.formats.settings import LaunchSettings, flatten
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute, Schedule, Strategy


def parse_galvatron(source: LaunchFile) -> Imported:
    """Read a layer-wise strategy of Galvatron; a flat strategy has the most frequent settings of its layers."""
    settings = LaunchSettings(flatten(source.top_level()), source.name)
    notes: list[str] = []
    defaults: list[str] = []
    pp = settings.whole("pp_deg") or 1
    tp = _most(settings, "tp_sizes_enc", 1, notes, source.name)
    cp = _most(settings, "cp_sizes_enc", 1, notes, source.name)
    sharded = _most(settings, "dp_types_enc", 0, notes, source.name)
    ulysses = _most(settings, "use_sp", 0, notes, source.name)
    checkpoint = _most(settings, "checkpoint", 0, notes, source.name)
    if ulysses:
        notes.append("use_sp=1 (Ulysses) uses the tensor ranks to split sequences; read as cp in place of tp")
        cp, tp = cp * tp, 1
    gpus = source.gpus or _gpus_in_name(source.name)
    run = replicas(
        World(devices=gpus, by_user=source.gpus is not None),
        tp * pp * cp,
        what=f"tp*pp*cp = {tp}*{pp}*{cp}",
        source=source.name,
    )
    batch, chunks = settings.whole("global_bsz"), settings.whole("chunks")
    mbs = max(1, (batch or 1) // ((chunks or 1) * run.dp))
    if batch is None or chunks is None:
        defaults.append(f"mbs={mbs}: the file has not both global_bsz and chunks")
    kind = settings.one_of("default_dp_type", ("ddp", "zero2", "zero3"))
    engine = settings.one_of("pipeline_type", ("pipedream_flush", "gpipe")) or "gpipe"
    zero = 3 if sharded else {"ddp": 0, "zero2": 2, "zero3": 3, None: 0}[kind]
    strategy = Strategy(
        dp=run.dp,
        tp=tp,
        pp=pp,
        cp=cp,
        mbs=mbs,
        schedule=Schedule.GPIPE if engine == "gpipe" and pp > 1 else Schedule.ONE_F_ONE_B,
        zero=0 if run.known and run.dp * cp == 1 else zero,
        sp=tp > 1,
        recompute=Recompute.FULL if checkpoint else Recompute.NONE,
        **_division(settings, pp, source.name),
    )
    other, unknown = settings.rest(harmless_by("galvatron"))
    workload = {"global_batch": batch, "gpus": strategy.devices if run.known else None}
    return Imported(
        format="galvatron",
        version="2",
        strategy=strategy,
        workload={key: value for key, value in workload.items() if value is not None},
        model={},
        other=other,
        unknown=unknown,
        defaults=(*run.defaults, *defaults),
        notes=(*run.notes, *notes),
    )


def _numbers(settings: LaunchSettings, name: str, source: str) -> list[int]:
    """Return the numbers of a text list of Galvatron."""
    value = settings.raw(name)
    if value is None:
        return []
    parts = value if isinstance(value, list) else str(value).split(",")
    if not all(re.fullmatch(r"\s*\d{1,9}\s*", str(part)) for part in parts):
        raise RequestError(f"{source}: {name} is a list of whole numbers like 2,2,4,4, but got {str(value)[:60]!r}")
    return [int(part) for part in parts]


def _most(settings: LaunchSettings, name: str, default: int, notes: list[str], source: str) -> int:
    numbers = _numbers(settings, name, source)
    if not numbers:
        return default
    counted = Counter(numbers)
    most = max(counted, key=lambda number: (counted[number], number))
    if len(counted) > 1:
        shown = ", ".join(f"{number} in {count}" for number, count in sorted(counted.items()))
        notes.append(f"{name} differs from layer to layer ({shown} layers); read as {most}, which most have")
    return most


def _division(settings: LaunchSettings, pp: int, source: str) -> dict[str, Any]:
    counts = _numbers(settings, "pp_division", source)
    if pp == 1 or not counts:
        return {}
    if len(counts) != pp:
        raise RequestError(f"{source}: pp_division names {len(counts)} stages, but pp_deg is {pp}")
    named = split_of(counts, pp=pp, vpp=1)
    assert named is not None  # without virtual stages every split can be named
    return {"split": named[0], "layers_per_stage": named[1]}


def _gpus_in_name(name: str) -> int | None:
    """Return the number of GPUs in a Galvatron file name (``2nodes_8gpus_per_node`` or ``8gpus``)."""
    nodes = re.search(r"(\d{1,5})nodes?_(\d{1,4})gpus", name)
    if nodes:
        return int(nodes[1]) * int(nodes[2])
    gpus = re.search(r"(\d{1,6})gpus", name)
    return int(gpus[1]) if gpus else None


FORMAT = Format(
    name="galvatron",
    version="2",
    title="Galvatron",
    main="galvatron_config.json",
    limits=(),
    write=None,
    parse=parse_galvatron,
    recognise=marked_by({"in": "json", "has": ['"pp_deg"', '"tp_sizes_enc"']}),
)
