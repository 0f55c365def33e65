"""Strategy and workload from the facts of a launch file."""

from typing import Any

from forerun.search.formats.adapters import stated_adapters
from forerun.search.formats.contract import Format, Imported, LaunchFile
from forerun.search.formats.devices import RunReplicas, World, batch_of, fewest_replicas, replicas, shard_stated
from forerun.search.formats.keys import REST, Launcher, LaunchFacts, read_keys
from forerun.search.formats.script_world import world_of
from forerun.search.formats.software import read_switches, split_known
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import ALL_LAYERS, ALL_REPLICAS, Placement, Recompute, Schedule, Split, Strategy


def format_of(launcher: Launcher, **writing: Any) -> Format:
    """Return the format of a table; ``writing``: fields of ``Format`` for a written one."""
    framework = launcher.frameworks[0] if launcher.frameworks else None
    stated = {name: tuple(value) if isinstance(value, list) else value for name, value in launcher.format.items()}
    fields: dict[str, Any] = {"main": "", "limits": (), "write": None, "framework": framework} | stated | writing
    return Format(
        name=launcher.name,
        version=launcher.version,
        title=launcher.title,
        parse=lambda source: read(launcher, source),
        recognise=launcher.marks,
        **fields,
    )


def read(launcher: Launcher, source: LaunchFile) -> Imported:
    """Read a file with a table of keys."""
    return imported(read_keys(launcher, source))


def imported(facts: LaunchFacts) -> Imported:
    """Combine the decisions of a file into a strategy and a workload.

    Raises
    ------
    RequestError
        Degrees do not fill the devices, or batches do not divide.
    """
    get, launcher = facts.get, facts.launcher
    tp, pp, cp = get("tp", 1), get("pp", 1), get("cp", 1)
    run = _of_batches(facts, _replicas(facts, tp, pp, cp))
    mbs, batch = _batch(facts, run)
    zero = get("zero", 0)
    if zero and run.known and run.dp * cp == 1:
        if "zero" in facts.stated:
            facts.notes.append(f"sharding over replicas (zero={zero}) has no effect with one replica")
        zero = 0
    copies, shard = get("instances", get("replicate", 1)), ALL_REPLICAS
    if zero and copies > 1:
        if run.known and run.dp * cp % copies:
            raise RequestError(
                f"{facts.source.name}: dp*cp = {run.dp}*{cp} replicas are not divisible by "
                f"{facts.key('instances' if get('instances') else 'replicate')}={copies}"
            )
        shard = shard_stated(run.dp * cp // copies if run.known else None, copies, facts.notes)
        zero = 0 if shard == 1 else zero  # every replica is a copy
    some = get("recompute_layers", 0)
    strategy = Strategy(
        dp=run.dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=get("ep", 1),
        etp=get("etp", 1),
        mbs=mbs,
        zero=zero,
        shard=shard if zero else ALL_REPLICAS,
        sp=bool(get("sp")) and tp > 1,
        recompute=Recompute.FULL if some else get("recompute", Recompute.NONE),
        recompute_layers=some or ALL_LAYERS,
        placement=Placement(int(bool(get("placement")) and pp > 1 and (run.dp > 1 or not run.known))),
        **_stages(facts, pp),
    )
    ranks = tp * cp * run.dp // strategy.etp
    if strategy.ep > 1 and run.known and ranks % strategy.ep:
        facts.notes.append(
            f"ep={strategy.ep} cannot be formed: it divides tp*cp*dp/etp ranks of a stage, of which there are {ranks}"
        )
    precision = get("precision", None if "precision" in facts.open else "fp32")
    workload = {"global_batch": batch, "seq_len": get("seq_len"), "precision": precision}
    workload["gpus"] = strategy.devices if run.known else None
    workload["lora"] = stated_adapters(facts)
    switches = _switches(facts, strategy, precision)
    other, unknown = _rest(facts)
    unmodelled, other = split_known(other, (*launcher.frameworks, launcher.name)[0])
    model = {name.removeprefix("model."): value for name, value in facts.values.items() if name.startswith("model.")}
    return Imported(
        format=launcher.name,
        version=launcher.version,
        strategy=strategy,
        workload={name: value for name, value in workload.items() if value is not None},
        model=model,
        other=other,
        unknown=unknown,
        switches=switches,
        unmodelled=unmodelled,
        defaults=(*run.defaults, *facts.defaults),
        notes=(*run.notes, *facts.notes),
    )


def _switches(facts: LaunchFacts, strategy: Strategy, precision: str | None) -> dict[str, str]:
    """Return the switches of the software that a file sets."""
    by_spelling = {spelled: name for name, spelled in facts.file.spelled.items()}
    mixture = "model.experts" in facts.values or strategy.ep > 1 or strategy.etp > 1
    switches: dict[str, str] = {}
    for framework in facts.launcher.frameworks:
        switches |= read_switches(
            lambda key: facts.settings.raw(by_spelling.get(key, key)),
            framework,
            strategy,
            mixture=mixture,
            precision=precision,
        )
    return switches | facts.switches


def _rest(facts: LaunchFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that no key reads, as written in the file: harmless ones, and unknown ones."""
    file, launcher = facts.file, facts.launcher
    other, unknown = facts.settings.rest(
        # Variables of a script count only if they are known settings.
        lambda name: name.isupper() or name in file.repeated or launcher.harmless(file.spelled.get(name, name))
    )
    return tuple(  # type: ignore[return-value]  # of two
        {
            file.spelled.get(name, name): file.values.get(name, value) if value is None else value
            for name, value in part.items()
        }
        for part in (other, unknown)
    )


def _stages(facts: LaunchFacts, pp: int) -> dict[str, Any]:
    """Return virtual stages, schedule and split of a pipeline."""
    if pp == 1:
        return {}
    schedule = facts.get("schedule")
    fixed = None if schedule is None else schedule_of(schedule)
    vpp = fixed.fewest_virtual if fixed and fixed.fewest_virtual == fixed.most_virtual > 1 else facts.get("vpp", 1)
    plain = Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B
    split = {"split": facts.get("split", Split.EVEN), "layers_per_stage": facts.get("layers_per_stage")}
    return {"vpp": vpp, "schedule": plain if schedule is None else schedule, **split}


def world(facts: LaunchFacts) -> World:
    """Return the number of devices: the user's, else the file's, else its scripts'."""
    source, get = facts.source, facts.get
    devices = get("devices")
    if devices is None and get("devices_per_node") is not None and get("nodes") != REST:
        devices = get("devices_per_node") * get("nodes", 1)
    if source.gpus is None and devices not in (None, REST):
        return World(devices=devices)
    return world_of(source)


def _replicas(facts: LaunchFacts, tp: int, pp: int, cp: int) -> RunReplicas:
    """Return the replicas: as stated by degrees, else from the remaining devices."""
    stated = {name: facts.get(name) for name in ("dp", "replicate", "shard") if facts.get(name) is not None}
    fixed = 1
    for degree in stated.values():
        fixed *= 1 if degree == REST else degree
    counted, name = world(facts), facts.source.name
    what = "*".join(["tp", "pp", "cp"] + (["replicas"] if fixed > 1 else [])) + f" = {tp}*{pp}*{cp}"
    what += f"*{fixed}" if fixed > 1 else ""
    if stated and REST not in stated.values():
        devices = fixed * tp * pp * cp
        if counted.devices not in (None, devices):
            raise RequestError(f"{name}: {what} = {devices} devices, but there are {counted.devices}")
        return RunReplicas(dp=fixed, known=True)
    ep = facts.get("ep", 1)
    least = fewest_replicas(ep, facts.get("etp", 1), tp * cp * fixed) if ep > 1 else 1
    run = replicas(counted, tp * pp * cp * fixed, what=what, source=name, least=least)
    if facts.get("replicate") == REST:
        facts.values["replicate"] = run.dp if run.known else 1
    return RunReplicas(dp=run.dp * fixed, known=run.known, defaults=run.defaults, notes=run.notes)


def _of_batches(facts: LaunchFacts, run: RunReplicas) -> RunReplicas:
    """Return the replicas implied by batches: global over micro-batch and accumulation."""
    batch, mbs, steps = (facts.get(name) for name in ("global_batch", "mbs", "accumulation"))
    if batch is None or mbs is None or steps is None:
        return run
    dp = batch // (mbs * steps)
    if batch % (mbs * steps) or (run.known and dp != run.dp):
        raise RequestError(
            f"{facts.source.name}: {facts.key('global_batch')} must be {facts.key('mbs')} * "
            f"{facts.key('accumulation')} * replicas, but they are {batch} and "
            f"{mbs}*{steps}*{run.dp if run.known else dp or 1}"
        )
    return RunReplicas(dp=dp, known=True)


def _batch(facts: LaunchFacts, run: RunReplicas) -> tuple[int, int | None]:
    """Return micro-batch and global batch (None: it depends on unknown replicas)."""
    get, name = facts.get, facts.source.name
    mbs, steps, batch = get("mbs"), get("accumulation"), get("global_batch")
    mbs = _sequences(facts, "mbs_tokens") if mbs is None else mbs
    batch = _sequences(facts, "global_tokens") if batch is None else batch
    if batch is None and get("local_batch") is not None and run.known:
        batch = get("local_batch") * run.dp
        facts.defaults.append(f"global batch {batch}: {get('local_batch')}*dp, the batches of all replicas")
    elif batch is not None and get("local_batch") and get("pp", 1) > 1 and batch != get("local_batch") * run.dp:
        facts.notes.append("each step runs the pipeline several times (gradient accumulation); read as one longer run")
    if mbs is None and get("most_mbs") and batch is not None and run.known and batch % run.dp == 0:
        share = batch // run.dp
        mbs = max(size for size in range(1, get("most_mbs") + 1) if share % size == 0)
        facts.notes.append(
            f"mbs={mbs}: microbatches are packed by tokens, at most {get('most_mbs')} full sequences, and {mbs} "
            f"divides the {share} of a replica"
        )
    elif mbs is None and not get("most_mbs") and batch is not None and run.known:
        share, left = divmod(batch, (steps or 1) * run.dp)
        if left or not share:
            raise RequestError(
                f"{name}: a global batch of {batch} cannot be divided among {run.dp} replicas in "
                f"{steps or 1} microbatches"
            )
        mbs = share
    elif mbs is None and get("most_mbs"):
        mbs = get("most_mbs")
    elif mbs is None:
        mbs = 1
        facts.defaults.append("mbs=1: the file states no micro-batch")
    if batch is None:
        if steps is None and get("local_batch") is None:
            facts.defaults.append("1 microbatch per step: the file states no accumulation")
        batch, assumed = batch_of(run, mbs * (steps or 1), "by accumulation")
        if not run.known or steps is None:
            facts.defaults.append(assumed)
    elif run.known and batch % (mbs * run.dp):
        facts.notes.append(
            f"a global batch of {batch} is not a multiple of micro-batch * replicas = {mbs}*{run.dp}: the run needs "
            "another batch or another number of devices"
        )
    return mbs, batch


def _sequences(facts: LaunchFacts, decision: str) -> int | None:
    """Convert tokens to whole sequences."""
    tokens, length = facts.get(decision), facts.get("seq_len")
    if tokens is None:
        return None
    if length is None or tokens % length:
        raise RequestError(
            f"{facts.source.name}: {tokens} tokens must be whole sequences, but the sequence length is {length}"
        )
    return int(tokens // length)
