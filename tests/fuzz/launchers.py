"""Launch files of many tools, orders of pipelines, lengths of documents, and what only some verbs are asked."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.sample import REQUEST, ROOT, SEARCH, Sample, quiet


def launchers(folder: Path) -> list[Sample]:
    """Return the documents; ``folder`` takes what stands beside them."""
    return [*_launch_cases(folder), *_scripts(), *_orders(folder), *_documents(), *_tiers(), *_words()]


def _launch_cases(folder: Path) -> list[Sample]:
    """The launch files of the tests: every tool whose keys are a table."""
    support = str(ROOT / "tests" / "support")
    sys.path.insert(0, support)
    try:
        from launch_files import LAUNCH_FILES  # type: ignore[import-not-found]  # of the tests
    finally:
        sys.path.remove(support)
    found = []
    for number, case in enumerate(LAUNCH_FILES.values()):
        (name, text), *others = case.files.items()
        beside = folder / f"case{number}"
        for other, more in others:
            (beside / other).parent.mkdir(parents=True, exist_ok=True)
            (beside / other).write_text(more)
        words = ["import", "{}", *(f"{{folder}}/{other}" for other, _ in others)]
        words += [
            word for flag in ("gpus", "entry") if flag in case.given for word in (f"--{flag}", str(case.given[flag]))
        ]
        words += ["--", *case.given["arguments"]] if "arguments" in case.given else []
        asked = dict(command=" ".join(words), beside=beside if others else None)
        name = Path(name).name
        found.append(Sample(name=name, content=text, **asked))
        if name.endswith((".yml", ".yaml")):
            with contextlib.suppress(yaml.YAMLError):  # some have tags of their tool's own
                found.append(Sample(name=name, content=yaml.safe_load(text), **asked))
    return found


def _scripts() -> list[Sample]:
    script = (
        "#!/bin/bash\nTP=${TP:-2}\nif [ $# -gt 0 ]; then PP=$1; else PP=1; fi\nfor a in 1 2; do MBS=$a; done\n"
        "GPUS=$((TP * PP * 4))\nARGS=(--tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP)\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]} --num-layers 32 --hidden-size 4096 \\\n"
        "  --num-attention-heads 32 --seq-length 2048 --micro-batch-size $MBS --global-batch-size 64 --bf16\n"
    )
    return [
        Sample(
            name="run.sh", content=script, command="import {} --gpus 8 --set-var TP=4 --set-var PP=1 --set-var MBS=2"
        ),
        Sample(name="run.sh", content=script, command="import {} --gpus 8 --set-var MBS=2 -- 2"),
    ]


def _orders(folder: Path) -> list[Sample]:
    simulate = f"simulate llama3-8b {REQUEST} --strategy"
    found = []
    for name, words in (("flat", "pp4 dp2 mbs1"), ("virtual", "pp4 dp2 mbs1 vpp2 schedule=interleaved")):
        path = folder / f"{name}.csv"
        quiet(f"simulate llama3-8b {REQUEST} --write-orders {path} --strategy", words)
        command = f"{simulate}@{words}@--fidelity events --orders {{}}"
        found.append(Sample(name="orders.csv", content=path.read_text(), command=command))
    return found


def _documents() -> list[Sample]:
    lengths = "".join(f"{length}\n" for length in (10, 512, 300, 77, 2048, 1))
    return [
        Sample(name="lengths.txt", content=lengths, command=f"{SEARCH} --documents {{}}"),
        Sample(name="lengths.txt", content=lengths,
               command=f"simulate llama3-8b {REQUEST} --strategy@tp2 dp4 mbs1@--documents {{}} --json"),
    ]  # fmt: skip


def _tiers() -> list[Sample]:
    network: dict[str, Any] = {
        "kind": "roce", "nic_rate": "400Gb/s",
        "tiers": [{"nodes": 4, "oversubscription": 7}, {"nodes": 64, "oversubscription": 1.5}],
    }  # fmt: skip
    own = {"device": "h100-sxm", "devices_per_node": 8, "max_devices": 24576, "network": network}
    return [
        Sample(
            name="tiers.yaml", content=own, command=f"simulate llama3-8b --cluster {{}} {_BATCH} --strategy@dp64 mbs1"
        ),
        Sample(name="tiers.yaml", content=own, command="show {}"),
    ]


_BATCH = "--global-batch 64 --seq-len 512"


def _words() -> list[Sample]:
    tuned = f"simulate llama3-8b {REQUEST} --strategy tp2,dp4,mbs1"
    requests = (
        "rollout qwen3-0.6b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 1024 --rollout-rate 2500"
        " --response 500 --forward-passes 2",
        f"{tuned} --lora 16:attention+mlp --freeze embedding,head",
        f"{tuned} --documents 300 --json",
        f"{tuned},with=tp-comm-overlap,sp,recompute=mlp",
        f"simulate llama3-8b {REQUEST} --strategy tp2,dp4,mbs1,recompute=full:3 --framework megatron-lm@0.14",
        "simulate mixtral-8x7b --cluster dgx-h100 --global-batch 16 --seq-len 512 --strategy"
        " dp16,ep8,mbs1,zero1,with=moe-overlap --moe-imbalance 1.1",
        f"search llama3-8b {REQUEST} --gpus 8 --with optimizer=muon --top 3",
        "search llama3-8b --cluster tpu-v5p-pod --gpus 100000 --global-batch 100000 --seq-len 512 --top 2",
    )
    return [Sample(name="words", content=text.replace(" ", "\n"), command="") for text in requests]
