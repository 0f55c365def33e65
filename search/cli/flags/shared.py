"""Flags that several verbs share."""

from dataclasses import replace
from typing import TYPE_CHECKING

from forerun.search.cli.flags.declaration import EQUAL_NODES, EVERY, GRAPHS, TRANSFORMERS, Flag, Group, Many
from forerun.search.cli.flags.kinds import BATCH, COUNT, POSITIVE, PRICE, SWITCH, TOKENS, WORKERS

if TYPE_CHECKING:
    import argparse

    from forerun.search.workers import Choice

MODEL = Flag(
    "model",
    "catalogue name, YAML file, Hugging Face config.json, or a graph: .onnx, .pt2, .net",
    metavar="MODEL",
    required=True,
    serves=EVERY,
)
CLUSTER = Flag(
    "--cluster",
    "catalogue name, YAML file, NCCL topology XML, or the text of `nvidia-smi topo -m` (.txt)",
    metavar="CLUSTER",
    required=True,
    configurable=True,
)
GLOBAL_BATCH = Flag(
    "--global-batch",
    "sequences (or images) per step; 4M tokens; 64/gpu or max/gpu for CNNs",
    BATCH,
    "B",
    required=True,
)
SEQ_LEN = Flag(
    "--seq-len",
    "tokens per sequence, like 8192 or 8k (transformers need it)",
    TOKENS,
    "S",
    unit="tokens",
    serves=TRANSFORMERS,
)
PROFILE = Flag(
    "--profile", "operators and collectives of this machine, as `forerun profile` wrote them", metavar="FILE"
)
CALIBRATION = Flag("--calibration", "constants of this machine, as `forerun calibrate` wrote them", metavar="FILE")
TRAINING = Group(
    "training",
    (
        CLUSTER,
        GLOBAL_BATCH,
        SEQ_LEN,
        Flag(
            "--precision",
            "bf16 (default), fp16, fp32, tf32, fp8, mxfp8, fp4, nvfp4: what the device has; search also ranks several",
            metavar="P",
        ),
        Flag(
            "--framework",
            "training software: NAME, NAME@VERSION or a YAML file with `like: NAME` (default megatron-lm; see "
            "`forerun list frameworks`)",
            metavar="F",
            configurable=True,
        ),
        Flag(
            "--with",
            "switches of the software, like tp-comm-overlap,dispatcher=deepep (see `forerun show FRAMEWORK`); for "
            "CNNs gradient-overlap and bucket=50MiB",
            metavar="SWITCH[=SETTING],...",
            key="with_switches",
            many=Many.REPEATED,
        ),
        Flag(
            "--without",
            "switches to turn off",
            metavar="SWITCH,...",
            key="without_switches",
            many=Many.REPEATED,
        ),
        Flag(
            "--optimizer",
            "default: that of the framework (adam; momentum for operator graphs)",
            choices=("sgd", "momentum", "adam", "muon"),
            serves=EQUAL_NODES,
        ),
        Flag("--tokens", "length of the whole training, like 15T", COUNT, "N", unit="tokens", serves=TRANSFORMERS),
        Flag(
            "--moe-imbalance",
            "tokens of the busiest expert rank over the mean (default 1.0)",
            POSITIVE,
            "X",
            serves=TRANSFORMERS,
        ),
        Flag(
            "--lora",
            "train adapters beside frozen matrices; RANK:PRODUCTS with attention+mlp (default) or experts",
            metavar="RANK",
            serves=TRANSFORMERS,
        ),
        Flag(
            "--freeze",
            "parts that are not trained: embedding, head, layers by name",
            metavar="PART,...",
            serves=TRANSFORMERS,
        ),
        Flag(
            "--documents",
            "sequences are packed of documents of so many tokens, or a file with a length per line",
            metavar="TOKENS",
            serves=TRANSFORMERS,
        ),
        Flag(
            "--ignore-config-field",
            "a field of config.json that does not change the cost (may be repeated)",
            metavar="NAME",
            many=Many.REPEATED,
            serves=TRANSFORMERS,
        ),
        Flag(
            "--usd-per-gpu-hour",
            "price of one GPU for one hour, or sky:CLOUD: the least one in SkyPilot's catalogue",
            PRICE,
            "USD",
            unit="USD",
            configurable=True,
        ),
        PROFILE,
        CALIBRATION,
    ),
)
OPERATOR_GRAPHS = Group(
    "operator graphs",
    (
        Flag(
            "--seconds-per-sample",
            "forward and backward pass of one sample on one GPU as measured (batch 64)",
            POSITIVE,
            "S",
            unit="s",
            serves=GRAPHS,
        ),
        Flag(
            "--allow-generic",
            "cost operators of an imported graph that have no rule by their bytes and operations",
            SWITCH,
            serves=GRAPHS,
        ),
        Flag(
            "--shape",
            "extents behind the batch of an input that an ONNX file leaves open, like x=3x640x640 (may be repeated)",
            metavar="NAME=EXTENTS",
            many=Many.REPEATED,
            serves=GRAPHS,
        ),
        Flag("--inference", "forward passes alone: nothing is trained", SWITCH, serves=EQUAL_NODES),
    ),
)
TRAINED = (MODEL, TRAINING, OPERATOR_GRAPHS)
"""The model, its training and its cluster."""
FORCE = Flag("--force", "overwrite existing files", SWITCH)
GPUS_OF_STRATEGY = Flag("--gpus", "check that the strategy occupies this many GPUs", metavar="N")
STRATEGY = Flag("--strategy", 'like "tp4 pp2 dp8 mbs1 zero1 sp"', metavar="TEXT", required=True)
SET = Flag(
    "--set",
    "restrict an axis, like tp=1,2,4 or recompute=full; may be repeated",
    metavar="AXIS=CHOICES",
    many=Many.REPEATED,
)
WORKER_FLAGS = Group(
    "workers (the result does not depend on them)",
    (
        Flag(
            "--workers",
            "serial, processes or ray (default: this process, plus others for long searches)",
            metavar="KIND",
            serves=EQUAL_NODES,
        ),
        Flag("--worker-count", "how many (default: one per core)", WORKERS, "N", serves=EQUAL_NODES),
        Flag("--address", "Ray cluster to use: HOST:PORT, ray://HOST:PORT or auto", metavar="A", serves=EQUAL_NODES),
    ),
)
SLURM_FLAGS = Group(
    "Slurm: lines of slurm.sbatch",
    (
        Flag("--partition", "partition of the job", metavar="P"),
        Flag("--account", "account that the job is charged to", metavar="A"),
        Flag("--time", "time limit, like 04:00:00 or 1-12", metavar="T"),
        Flag("--container", "image that pyxis starts on each node (srun)", metavar="IMAGE"),
    ),
)


def without(group: Group, *names: str) -> Group:
    """Return a group without some of its flags."""
    return replace(group, flags=tuple(flag for flag in group.flags if flag.name not in names))


def optional(group: Group, *names: str) -> Group:
    """Return a group in which some flags are not required."""
    flags = (replace(flag, required=False) if flag.name in names else flag for flag in group.flags)
    return replace(group, flags=tuple(flags))


def workers_of(args: "argparse.Namespace") -> "Choice":
    """Return the choice of workers that flags make."""
    from forerun.search.workers import Choice

    return Choice(kind=args.workers, count=args.worker_count, address=args.address)
