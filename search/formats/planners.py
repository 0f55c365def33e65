"""Strategy files of other planners: SimuMax, Calculon and Galvatron. forerun reads them and does not write them.

Sources: ``StrategyConfig`` of MooreThreads/SimuMax 1.2, ``Llm.Execution`` of calculon-ai/calculon, ``config2strategy``
of PKU-DAIR/Hetu-Galvatron 2.
"""

import re
from collections import Counter
from typing import Any

from forerun.search.formats.contract import Format, Imported, LaunchFile
from forerun.search.formats.devices import RunReplicas, World, replicas
from forerun.search.formats.layers import split_of
from forerun.search.formats.settings import LaunchSettings, flatten
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Placement, Recompute, Schedule, Split, Strategy

FLOATS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8": "fp8", "bf16": "bf16", "fp16": "fp16"}
FLOATS |= {"fp32": "fp32", "fp8": "fp8"}

SIMUMAX_KNOWN = re.compile(
    r"moe_|order_of|cp_comm|cp_a2a|no_sync|attention_sparse|enable_dropout|use_|skip_ckpt|mem_factor|grad_reduce|cache_|"
    r"offload_|dispatch_|mla_|mlp_|attn_recompute|enable_straggler|recompute_|megatron_|overlap|dualpp|tp_net|pp_net|dp_net|"
    r"ep_net|etp_net|cp_net|edp_net|optimizer_style|zero_|pp_comm"
)
CALCULON_KNOWN = re.compile(
    r"(tensor|pipeline|data)_par_(net|overlap)|fused_activation|attention_type|seq_par_ag_redo|\w+_offload|training|"
    r"in_network_reduction|datatype"
)
GALVATRON_KNOWN = re.compile(r"vtp|vsp|vcp|embed_sdp|tp_consecutive_flags|cp_sizes_enc|search_|num_layertype")


def _result(
    name: str,
    version: str,
    settings: LaunchSettings,
    known: re.Pattern[str],
    strategy: Strategy,
    workload: dict[str, Any],
    found: RunReplicas,
    defaults: list[str],
    notes: list[str],
) -> Imported:
    other, unknown = settings.rest(lambda key: known.match(key) is not None)
    facts = workload | ({"gpus": strategy.devices} if found.known else {})
    return Imported(
        format=name,
        version=version,
        strategy=strategy,
        workload={key: value for key, value in facts.items() if value is not None},
        model={},
        other=other,
        unknown=unknown,
        defaults=(*found.defaults, *defaults),
        notes=(*found.notes, *notes),
    )


def parse_simumax(source: LaunchFile) -> Imported:
    """Read a strategy file of SimuMax."""
    settings = LaunchSettings(flatten(source.top_level()), source.name)
    notes: list[str] = []
    degree: dict[str, Any] = {name: settings.whole(f"{name}_size") or 1 for name in ("tp", "pp", "cp", "ep", "etp")}
    tp, pp, cp = degree["tp"], degree["pp"], degree["cp"]
    stated = settings.whole("world_size")
    world = World(devices=source.gpus or stated, by_user=source.gpus is not None)
    found = replicas(world, tp * pp * cp, what=f"tp*pp*cp = {tp}*{pp}*{cp}", source=source.name)
    vpp = settings.whole("interleaving_size") or 1 if pp > 1 else 1
    schedule = _simumax_schedule(settings, vpp, notes)
    vpp = 2 if schedule == Schedule.ZB_V else vpp
    first, last = (settings.whole(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
    if (first or last) and pp > 1:
        notes.append(
            f"stages of {first or 'the rest'} and {last or 'the rest'} layers need the model; read as balanced"
        )
    mbs = settings.whole("micro_batch_size") or 1
    count = settings.whole("micro_batch_num") or 1
    zero = settings.whole("zero_state", least=0) or 0
    strategy = Strategy(
        dp=found.dp,
        **degree,
        mbs=mbs,
        vpp=vpp if pp > 1 else 1,
        schedule=schedule if pp > 1 else Schedule.ONE_F_ONE_B,
        split=_simumax_split(settings, pp, bool(first or last)),
        zero=0 if found.known and found.dp * cp == 1 else zero,
        sp=bool(settings.flag("enable_sequence_parallel")) and tp > 1,
        recompute=_simumax_recompute(settings, notes),
        placement=Placement.TP_CP_EP_DP_PP,
    )
    fp8 = settings.flag("fp8")
    dtype = settings.text("dtype") or "bf16"
    workload = {
        "global_batch": mbs * count * found.dp,
        "seq_len": settings.whole("seq_len"),
        "precision": "fp8" if fp8 else FLOATS.get(dtype, dtype),
    }
    return _result("simumax", "1.2", settings, SIMUMAX_KNOWN, strategy, workload, found, [], notes)


def _simumax_schedule(settings: LaunchSettings, vpp: int, notes: list[str]) -> Schedule:
    text = (settings.text("pp_schedule", "pipeline_schedule", "schedule") or "").lower().replace("-", "_")
    names = {"gpipe": Schedule.GPIPE, "zb_h1": Schedule.ZB_H1, "zb_v": Schedule.ZB_V, "dualpipe": Schedule.DUALPIPE}
    if text in names:
        return names[text]
    if text and "1f1b" not in text:
        notes.append(f"schedule {text} has no name in a strategy; read as 1f1b")
    return Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B


def _simumax_split(settings: LaunchSettings, pp: int, edges: bool) -> Split:
    embedding = settings.flag("account_for_embedding_in_pipeline_split") or False
    loss = settings.flag("account_for_loss_in_pipeline_split") or False
    if pp == 1:
        return Split.EVEN
    if edges:
        return Split.BALANCED
    return (
        Split.LIGHT_ENDS
        if embedding and loss and pp > 2
        else Split.LIGHT_LAST
        if loss and not embedding
        else Split.EVEN
    )


def _simumax_recompute(settings: LaunchSettings, notes: list[str]) -> Recompute:
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


def parse_calculon(source: LaunchFile) -> Imported:
    """Read an execution file of Calculon."""
    settings = LaunchSettings(flatten(source.top_level()), source.name)
    notes: list[str] = []
    tp, pp = settings.whole("tensor_par") or 1, settings.whole("pipeline_par") or 1
    dp, procs = settings.whole("data_par"), settings.whole("num_procs")
    if dp is None or (procs is not None and procs != dp * tp * pp):
        raise RequestError(
            f"{source.name}: num_procs {procs} must be tensor_par*pipeline_par*data_par = {tp}*{pp}*{dp}"
        )
    vpp = settings.whole("pipeline_interleaving") or 1
    kind = settings.one_of("activation_recompute", ("full", "attn_only", "none")) or "none"
    communication = settings.one_of("tensor_par_comm_type", ("ar", "p2p_rs_ag", "rs_ag")) or "ar"
    if communication == "p2p_rs_ag":
        notes.append("tensor_par_comm_type p2p_rs_ag (scattered pipeline sends) is read without sequence parallel")
    strategy = Strategy(
        dp=dp,
        tp=tp,
        pp=pp,
        mbs=settings.whole("microbatch_size") or 1,
        vpp=vpp if pp > 1 else 1,
        schedule=Schedule.INTERLEAVED if vpp > 1 and pp > 1 else Schedule.ONE_F_ONE_B,
        zero=int(bool(settings.flag("optimizer_sharding")) and dp > 1),
        sp=communication == "rs_ag" and tp > 1,
        recompute={"full": Recompute.FULL, "attn_only": Recompute.SELECTIVE, "none": Recompute.NONE}[kind],
    )
    dtype = settings.text("datatype") or "float16"
    workload = {"global_batch": settings.whole("batch_size"), "precision": FLOATS.get(dtype, dtype)}
    found = RunReplicas(dp=dp, known=True)
    return _result("calculon", "1", settings, CALCULON_KNOWN, strategy, workload, found, [], notes)


def parse_galvatron(source: LaunchFile) -> Imported:
    """Read a layer-wise strategy of Galvatron; where layers differ, a flat strategy takes what most of them have."""
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
    found = replicas(
        World(devices=gpus, by_user=source.gpus is not None),
        tp * pp * cp,
        what=f"tp*pp*cp = {tp}*{pp}*{cp}",
        source=source.name,
    )
    batch, chunks = settings.whole("global_bsz"), settings.whole("chunks")
    mbs = max(1, (batch or 1) // ((chunks or 1) * found.dp))
    if batch is None or chunks is None:
        defaults.append(f"mbs={mbs}: the file has not both global_bsz and chunks")
    kind = settings.one_of("default_dp_type", ("ddp", "zero2", "zero3"))
    engine = settings.one_of("pipeline_type", ("pipedream_flush", "gpipe")) or "gpipe"
    zero = 3 if sharded else {"ddp": 0, "zero2": 2, "zero3": 3, None: 0}[kind]
    strategy = Strategy(
        dp=found.dp,
        tp=tp,
        pp=pp,
        cp=cp,
        mbs=mbs,
        schedule=Schedule.GPIPE if engine == "gpipe" and pp > 1 else Schedule.ONE_F_ONE_B,
        zero=0 if found.known and found.dp * cp == 1 else zero,
        sp=tp > 1,
        recompute=Recompute.FULL if checkpoint else Recompute.NONE,
        **_division(settings, pp, source.name),
    )
    workload = {"global_batch": batch}
    return _result("galvatron", "2", settings, GALVATRON_KNOWN, strategy, workload, found, defaults, notes)


def _numbers(settings: LaunchSettings, name: str, source: str) -> list[int]:
    """Return a list that Galvatron writes as a text of numbers."""
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
    assert named is not None  # without virtual stages every split has a name
    return {"split": named[0], "layers_per_stage": named[1]}


def _gpus_in_name(name: str) -> int | None:
    """Galvatron writes ``2nodes_8gpus_per_node`` or ``8gpus`` into the names of its files."""
    nodes = re.search(r"(\d{1,5})nodes?_(\d{1,4})gpus", name)
    if nodes:
        return int(nodes[1]) * int(nodes[2])
    gpus = re.search(r"(\d{1,6})gpus", name)
    return int(gpus[1]) if gpus else None


def _json_with(*keys: str) -> Any:
    """Return the predicate "a JSON file that has all these keys"."""
    return lambda source: source.suffix == ".json" and all(f'"{key}"' in source.text for key in keys)


SIMUMAX = Format(
    name="simumax",
    version="1.2",
    title="SimuMax",
    main="strategy.json",
    limits=(),
    write=None,
    parse=parse_simumax,
    recognise=_json_with("tp_size", "micro_batch_num"),
)
CALCULON = Format(
    name="calculon",
    version="1",
    title="Calculon",
    main="execution.json",
    limits=(),
    write=None,
    parse=parse_calculon,
    recognise=_json_with("tensor_par", "pipeline_par"),
)
GALVATRON = Format(
    name="galvatron",
    version="2",
    title="Galvatron",
    main="galvatron_config.json",
    limits=(),
    write=None,
    parse=parse_galvatron,
    recognise=_json_with("pp_deg", "tp_sizes_enc"),
)
