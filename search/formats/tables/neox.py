"""GPT-NeoX 2: joint YAML files of a run (``deepy.py train.py 20B.yml local_setup.yml``).

Source: ``megatron/neox_arguments/neox_args.py`` and ``deepspeed_args.py`` of EleutherAI/gpt-neox: names have dashes or
underscores, a pipeline of 0 stages has one stage, replicas fill the devices.
"""

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import scripts
from forerun.search.formats.limits import COMMON, when
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.syntax import documents
from forerun.search.formats.tables.limits_of import NO_DIVIDING, ONE_STAGE_SPLIT
from forerun.search.formats.writing import nested, settings_of
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.models.model import MixtureOfExperts

MAIN = "gpt_neox.yml"


def adjust(facts: LaunchFacts) -> None:
    """Add a note on checkpoints of several layers."""
    layers = facts.settings.whole("checkpoint_num_layers", least=0)
    if facts.get("recompute") and (layers or 1) > 1:
        facts.notes.append(f"recompute from every layer number {layers} is read as recompute=full: from every layer")
    if facts.settings.flag("partition_activations") and facts.get("recompute"):
        facts.notes.append(
            "partition_activations shares saved activations out over tensor ranks; not part of a strategy"
        )


LAUNCHER = read_launcher("gpt-neox", syntax=documents, adjust=adjust)
LIMITS = (
    *COMMON,
    decoders_only("GPT-NeoX"),
    *by_keys(LAUNCHER),
    NO_DIVIDING,
    ONE_STAGE_SPLIT,
    when(lambda s: s.pp > 1 and s.zero > 1, "zero > 1 with pp > 1: DeepSpeed's pipeline keeps gradients whole", zero=1),
)


def write(launch: Launch) -> Files:
    """Return one YAML file and the script that passes it to ``deepy.py``."""
    s, mlp = launch.strategy, launch.model.layers[-1].mlp
    stated = settings_of(LAUNCHER.keys, launch) | {"max_position_embeddings": launch.workload.seq_len}
    if isinstance(mlp, MixtureOfExperts):
        stated["intermediate_size"] = mlp.expert_hidden
    if launch.nodes > 1:
        stated |= {"launcher": "slurm", "deepspeed_slurm": True, "no_ssh_check": True}
    data = nested(stated, LAUNCHER.run)
    text = dump_yaml(data, f"{launch.name}: {LAUNCHER.title}, {s}", "name the data and the tokenizer")
    several = launch.nodes > 1
    hosts = [
        "# Its launcher starts all nodes from the first one, by srun. Without Slurm drop launcher and deepspeed_slurm",
        f"# from {MAIN}, and name a hostfile in DLTS_HOSTFILE.",
        'if [ -z "${DLTS_HOSTFILE:-}" ]; then',
        '    NODES="${SLURM_JOB_NODELIST:?several nodes need Slurm, or a hostfile named in DLTS_HOSTFILE}"',
        '    export DLTS_HOSTFILE="$PWD/hostfile-${SLURM_JOB_ID:-0}"',
        '    scontrol show hostnames "$NODES" | sed "s/$/ slots=$GPUS_PER_NODE/" > "$DLTS_HOSTFILE"',
        "fi",
        "",
    ]
    path = ['CONFIG="$PWD"', 'cd "${NEOX_PATH:-.}"']
    command = [f'python ./deepy.py train.py "$CONFIG/{MAIN}"']
    before = [*(hosts if several else ()), *path]
    return {MAIN: text, **scripts(launch, LAUNCHER.title, command, before=before, once=several)}


FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write)
