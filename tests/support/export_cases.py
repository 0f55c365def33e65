"""One launch of every format that starts a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportCase:
    """A strategy on two nodes of eight devices, what starts it on a node, the program that is started, and the
    framework that is searched."""

    strategy: str
    launcher: str
    program: str
    framework: str
    once: bool = False


CASES = {
    "megatron-lm": ExportCase("tp2 pp2 dp4 mbs1 zero1 sp", "torchrun", "pretrain_gpt.py", "megatron-lm"),
    "megatron-bridge": ExportCase("tp2 pp2 dp4 mbs1 zero1 sp", "torchrun", "run_recipe.py", "nemo"),
    "torchtitan": ExportCase("tp2 pp2 dp4 mbs1 zero2 sp", "torchrun", "torchtitan.train", "torchtitan"),
    "torchtitan-0.3": ExportCase("tp2 pp2 dp4 mbs1 zero2 sp", "torchrun", "torchtitan.train", "torchtitan"),
    "torchtitan-toml": ExportCase("tp2 pp2 dp4 mbs1 zero2 sp", "torchrun", "torchtitan.train", "torchtitan"),
    "deepspeed": ExportCase("tp1 pp1 dp16 mbs1 zero3 recompute=full", "deepspeed", "train.py", "deepspeed"),
    "accelerate-fsdp": ExportCase("tp1 pp1 dp16 mbs1 zero3 recompute=full", "accelerate", "train.py", "fsdp"),
    "accelerate-megatron": ExportCase(
        "tp2 pp2 dp4 mbs1 zero1 sp recompute=full", "accelerate", "train.py", "megatron-lm"
    ),
    "nanotron": ExportCase("tp2 pp2 dp4 mbs1 zero1 sp split=by-cost", "torchrun", "run_train.py", "nanotron"),
    "torch": ExportCase("tp1 pp1 dp16 mbs1 zero3", "torchrun", "train.py", "fsdp"),
    "gpt-neox": ExportCase("tp2 pp2 dp4 mbs1 zero1", "python", "train.py", "megatron-deepspeed", once=True),
    "axolotl": ExportCase("tp1 pp1 dp16 mbs1 zero3", "torchrun", "axolotl.cli.train", "fsdp"),
    "llama-factory": ExportCase("tp1 pp1 dp16 mbs1 zero3", "llamafactory-cli", "train", "deepspeed"),
    "olmo-core": ExportCase("tp2 pp2 dp4 mbs1 zero2 sp", "torchrun", "olmo_core_train.py", "fsdp"),
    "maxtext": ExportCase("tp4 pp1 dp4 mbs1 zero3 sp", "python3", "maxtext.trainers.pre_train.train", "maxtext"),
    "mindspeed": ExportCase("tp2 pp2 dp4 mbs1 zero1 sp", "torchrun", "pretrain_gpt.py", "mindspeed"),
}
CLUSTERS = {"maxtext": "tpu-v5p-pod", "mindspeed": "ascend-910b-box"}
"""Where a framework runs that does not run on a DGX H100."""
