"""Which flags an answer takes: what it does not look at is refused by name, never ignored."""

import argparse

from forerun.spaces.errors import RequestError

TRAINING = ("debug", "json", "model", "cluster", "global_batch", "gpus", "precision", "framework")
FILES = ("out", "force", "report")

OPERATOR_GRAPH = (
    *TRAINING,
    "seconds_per_sample",
    "allow_generic",
    "optimizer",
    "usd_per_gpu_hour",
    "profile",
    "calibration",
)
SEARCH_OF_GRAPH = (
    *OPERATOR_GRAPH,
    *FILES,
    "detail",
    "set",
    "objective",
    "top",
    "usd_per_hour",
    "oom_risk",
    "refine",
    "workers",
    "worker_count",
    "address",
    "baseline",
    "measured",
    "trees",
    "inference",
)
COMPARED_SPLITS = (*OPERATOR_GRAPH, "strategy", "inference")
STRATEGY_OF_GRAPH = (*OPERATOR_GRAPH, "inference", "paradl", "strategy", "fidelity", "write_tree", "force")
SIMULATE_OF_GRAPH = (*STRATEGY_OF_GRAPH, "tree", "trace", "timeline", "contention", "chakra")
PROFILE_OF_GRAPH = (
    *OPERATOR_GRAPH,
    "set",
    "strategy",
    "only",
    "collective_bytes",
    "nccl_tests",
    "device",
    "repeat",
    "seconds",
    "largest_operator",
    "plan",
    "out",
    "force",
)
LIMITS_OF_GRAPH = (*OPERATOR_GRAPH, "set", "report", "force")

SEARCH_ON_GROUPS = (
    *TRAINING,
    *FILES,
    "detail",
    "seq_len",
    "tokens",
    "moe_imbalance",
    "lora",
    "freeze",
    "documents",
    "with_switches",
    "without_switches",
    "ignore_config_field",
    "usd_per_gpu_hour",
    "train_within",
    "train_usd",
    "oom_risk",
    "profile",
    "calibration",
    "set",
    "space",
    "objective",
    "top",
    "all_variants",
    "per_stage",
    "uneven_stages",
    "evaluations",
)


def only(args: argparse.Namespace, takes: tuple[str, ...], why: str) -> None:
    """Refuse what the user gave of flags that an answer does not take; ``why`` ends the message after the flag.

    Raises:
        RequestError: there is one.
    """
    for name, flag in args.given.items():
        if name not in takes:
            raise RequestError(f"{flag} {why}")
