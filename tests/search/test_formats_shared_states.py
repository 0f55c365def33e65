"""States that a part of the replicas shares: every framework's own words for it, out and in."""

from dataclasses import replace

import pytest
from forerun_launches import launch_of

from forerun.search.formats import Imported, format_named, import_texts
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy


@pytest.mark.parametrize(
    ("name", "strategy", "written"),
    [
        ("torchtitan-toml", "tp2 pp2 dp16 cp2 mbs1 zero3 shard=8 sp", "data_parallel_replicate_degree = 4"),
        ("torchtitan-toml", "tp2 pp2 dp16 cp2 mbs1 zero3 shard=8 sp", "data_parallel_shard_degree = 4"),
        ("torchtitan", "tp1 dp32 mbs2 zero2 shard=8", "data_parallel_replicate_degree=4"),
        ("accelerate-fsdp", "tp1 dp16 cp2 mbs1 zero3 shard=8", "dp_replicate_size: 4"),
        ("accelerate-fsdp", "tp1 dp16 cp2 mbs1 zero3 shard=8", "dp_shard_size: 4"),
        ("megatron-lm", "tp2 pp2 dp16 cp2 mbs1 zero1 shard=8 sp", "--num-distributed-optimizer-instances 4"),
        ("megatron-bridge", "tp2 pp2 dp16 mbs1 zero1 shard=8 sp", "num_distributed_optimizer_instances: 2"),
        ("forerun", "tp1 dp32 mbs1 zero3 shard=8", "shard=8"),
    ],
)
def test_each_in_its_own_words(name: str, strategy: str, written: str) -> None:
    files = format_named(name).express(launch_of(strategy))

    assert written in "\n".join(files.values())
    assert str(import_texts(files).strategy) == str(parse_strategy(strategy))


@pytest.mark.parametrize(
    ("name", "strategy", "reason"),
    [
        ("nanotron", "tp1 dp16 mbs1 zero1 shard=8", "it shards over all replicas"),
        ("torchtitan", "tp1 dp16 cp4 mbs1 zero3 shard=2", "multiples of cp=4"),
        ("deepspeed", "tp1 dp16 mbs1 zero1 shard=8", "MiCS, which shards over a part of the replicas, was removed"),
        ("megatron-lm", "tp1 dp16 mbs1 zero1 shard=3", "more than one and divide dp*cp = 16"),
        ("megatron-lm", "tp1 dp16 ep8 mbs1 zero1 shard=4", "ep*etp = 8 must divide shard*tp = 4"),
    ],
)
def test_what_a_framework_has_no_words_for_is_refused(name: str, strategy: str, reason: str) -> None:
    asked = launch_of(strategy)
    with pytest.raises(RequestError, match="nearest") as caught:
        format_named(name).express(asked)

    assert reason in str(caught.value)
    near = format_named(name).nearest(asked)
    assert near is not None
    assert near.strategy == replace(asked.strategy, shard=0)


def imported(name: str, text: str) -> Imported:
    return import_texts({name: text})


FSDP1 = """
distributed_type: FSDP
mixed_precision: bf16
num_machines: {nodes}
num_processes: 16
fsdp_config: {{fsdp_sharding_strategy: {sharding}, fsdp_version: 1}}
"""


@pytest.mark.parametrize(
    ("sharding", "nodes", "strategy"),
    [
        ("HYBRID_SHARD", 2, "tp1 pp1 dp16 mbs1 zero3 shard=8"),
        ("HYBRID_SHARD_ZERO2", 4, "tp1 pp1 dp16 mbs1 zero2 shard=4"),
        ("HYBRID_SHARD", 1, "tp1 pp1 dp16 mbs1 zero3"),
        ("FULL_SHARD", 2, "tp1 pp1 dp16 mbs1 zero3"),
    ],
)
def test_hybrid_sharding_of_fsdp_1_is_within_nodes(sharding: str, nodes: int, strategy: str) -> None:
    found = imported("accelerate.yaml", FSDP1.format(sharding=sharding, nodes=nodes))

    assert str(found.strategy) == strategy
    assert not found.notes


@pytest.mark.parametrize(
    ("replicate", "shard", "cp", "strategy"),
    [
        (4, 4, 1, "tp1 pp1 dp16 mbs1 zero3 shard=4"),
        (2, 1, 8, "tp1 pp1 dp2 cp8 mbs1 zero3 shard=8"),
        (1, 16, 1, "tp1 pp1 dp16 mbs1 zero3"),
        (16, 1, 1, "tp1 pp1 dp16 mbs1"),
    ],
)
def test_degrees_of_accelerate_say_who_shares(replicate: int, shard: int, cp: int, strategy: str) -> None:
    sizes = {"dp_replicate": replicate, "dp_shard": shard, "cp": cp}
    lines = [f"  parallelism_config_{name}_size: {size}" for name, size in sizes.items()]
    text = "distributed_type: FSDP\nnum_processes: 16\nfsdp_config: {fsdp_version: 2}\nparallelism_config:\n"

    assert str(imported("accelerate.yaml", text + "\n".join(lines)).strategy) == strategy


def test_what_is_not_known_or_has_no_word_is_noted() -> None:
    toml = "[parallelism]\ndata_parallel_replicate_degree = 4\ndata_parallel_shard_degree = -1\n"
    unknown = imported("train.toml", toml)
    hpz = imported(
        "ds.json", '{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}, "train_batch_size": 8}'
    )

    assert "sharded over 1/4 of the replicas" in " ".join(unknown.notes)
    assert not unknown.strategy.shard
    assert "second copy of parameters within groups" in " ".join(hpz.notes)


def test_instances_that_do_not_divide_the_replicas_are_refused() -> None:
    arguments = "--num-layers 24 --use-distributed-optimizer --num-distributed-optimizer-instances 3"
    with pytest.raises(RequestError, match="not divisible by num_distributed_optimizer_instances=3"):
        imported("launch.sh", f"torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py {arguments}")
