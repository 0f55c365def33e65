"""forerun's own YAML: the strategy as its string, with all other facts of the run."""

from typing import Any

from forerun.search.formats.contract import Files, Format, Imported, Launch, LaunchFile
from forerun.search.formats.launchers import facts_of_data
from forerun.search.formats.settings import LARGEST, LaunchSettings, flatten
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted, visible
from forerun.spaces.frameworks.switches import all_switches, as_word
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import PRECISIONS

NAME, VERSION = "forerun", "1"
MAIN = "forerun.yaml"


def write(launch: Launch) -> Files:
    """Return the YAML; it expresses every strategy."""
    workload = launch.workload
    facts: dict[str, Any] = {
        "global_batch": workload.global_batch,
        "seq_len": workload.seq_len,
        "precision": workload.precision,
    }
    facts |= {"lora": launch.tuning.lora} if launch.tuning.lora else {}
    facts |= {"freeze": ",".join(launch.tuning.frozen)} if launch.tuning.frozen else {}
    facts |= facts_of_data(launch)
    data = {
        "forerun": int(VERSION),
        "name": visible(launch.name),
        "model": launch.model.name,
        "strategy": str(launch.strategy),
        **({"switches": dict(launch.switches)} if launch.switches else {}),
        "workload": facts,
        "gpus": launch.strategy.devices,
        "devices_per_node": launch.devices_per_node,
    }
    return {MAIN: dump_yaml(data)}


def parse(source: LaunchFile) -> Imported:
    """Read a file of this form."""
    settings = LaunchSettings(flatten(source.top_level()), source.name)
    version = settings.whole("forerun")
    if version != int(VERSION):
        raise RequestError(f"{source.name}: forerun: {VERSION} names this form, but got {version}")
    text = settings.text("strategy")
    if text is None:
        raise RequestError(f"{source.name}: strategy is missing; write it like tp4 pp2 dp8 mbs1")
    try:
        strategy = parse_strategy(text)
    except RequestError as error:
        raise RequestError(f"{source.name}: strategy: {error}") from None
    gpus = settings.whole("gpus") or source.gpus
    if gpus is not None and gpus != strategy.devices:
        raise RequestError(f"{source.name}: strategy {strategy} occupies {strategy.devices} GPUs, but gpus is {gpus}")
    workload = {
        "global_batch": settings.whole("workload.global_batch"),
        "seq_len": settings.whole("workload.seq_len"),
        "precision": settings.one_of("workload.precision", PRECISIONS),
        "gpus": strategy.devices,
        "lora": settings.text("workload.lora"),
        "freeze": settings.text("workload.freeze"),
        **{name: _number(settings, f"workload.{name}") for name in ("documents", "moe_imbalance")},
    }
    facts: dict[str, Any] = {"name": settings.text("model"), "run": settings.text("name")}
    facts |= {"devices_per_node": settings.whole("devices_per_node")}
    switches = {
        name: as_word(settings.raw(f"switches.{name}")) for name in all_switches() if f"switches.{name}" in settings
    }
    other, unknown = settings.rest()
    return Imported(
        format=NAME,
        version=VERSION,
        strategy=strategy,
        workload={key: value for key, value in workload.items() if value is not None},
        model={key: value for key, value in facts.items() if value is not None},
        other=other,
        unknown=unknown,
        switches=switches,
    )


def _number(settings: LaunchSettings, name: str) -> float | None:
    """Return a number of at least 1."""
    value = settings.raw(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LARGEST:
        raise settings.wrong((name,), f"must be a number from 1 to {LARGEST}, but got {quoted(str(value))}")
    return float(value)


def recognise(source: LaunchFile) -> bool:
    """Whether a YAML file starts with forerun's key."""
    return source.suffix in (".yaml", ".yml") and "\nforerun:" in "\n" + source.text


FORMAT = Format(
    name=NAME,
    version=VERSION,
    title="forerun",
    main=MAIN,
    limits=(),
    write=write,
    parse=parse,
    recognise=recognise,
    adapters=True,
    parts=True,
    writes=frozenset(all_switches()),
    packs=r"^  documents:",
)
