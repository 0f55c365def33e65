"""A valid document of every reader, small, and the command that reads it. Most are written by forerun itself."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz.graphs_and_traces import graphs, traces
from tests.fuzz.launchers import launchers
from tests.fuzz.results import measured, results
from tests.fuzz.sample import CONFIGS, REQUEST, ROOT, SEARCH, STRATEGY, Sample
from tests.fuzz.software import software


def samples(folder: Path) -> list[Sample]:
    """Return the corpus; ``folder`` takes what forerun writes for it."""
    found = [*_requests(), *_clusters(folder), *graphs(), *traces(), *_configs(), *_words()]
    return [*found, *software(folder), *results(folder), *measured(folder), *launchers(folder)]


def _requests() -> list[Sample]:
    axes = {"axes": {"tp": [1, 2, 4], "pp": [1, 2], "mbs": [1, 2], "recompute": ["none", "full"], "zero": [0, 1]}}
    plan = {
        "models": ["llama3-8b"],
        "clusters": ["dgx-h100"],
        "workloads": [{"global_batch": 16, "seq_len": 512, "tokens": "1B", "precision": "bf16"}],
        "budgets": [{"gpus": 8, "usd_per_gpu_hour": 2.5, "usd_per_hour": 100, "train_usd": 1e6, "train_within": "30d"}],
        "frameworks": ["megatron-lm"],
        "objective": "throughput",
        "top": 3,
        "axes": {"tp": [2, 4], "pp": [1], "mbs": [1]},
    }
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
        "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 32000,
        "max_position_embeddings": 4096, "tie_word_embeddings": False, "head_dim": 64, "torch_dtype": "bfloat16",
    }  # fmt: skip
    mixture = {
        **config, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 256, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "n_group": 2, "topk_group": 1, "kv_lora_rank": 128, "q_lora_rank": 256, "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16, "v_head_dim": 32, "num_nextn_predict_layers": 1, "num_key_value_heads": 8,
    }  # fmt: skip
    profile = {
        "name": "net",
        "batch": 32,
        "update": "1ms",
        "host": "1ms",
        "layers": [
            {"name": "conv", "parameters": "7MB", "forward": "3ms", "backward": "6ms"},
            {"name": "head", "parameters": "40MB", "forward": "1ms", "backward": "2ms"},
        ],
    }
    simulate = f"simulate {{}} {REQUEST} --strategy"
    flat = f"{simulate}@tp2 dp4 mbs1"
    return [
        Sample(name="space.yaml", content=axes, command=f"{SEARCH} --space {{}}"),
        Sample(name="plan.yaml", content=plan, command="sweep {} --out {folder}/out --workers serial --json"),
        Sample(name="config.json", content=config, command=flat),
        Sample(name="config.json", content=mixture, command=flat),
        Sample(name="net.yaml", content=profile, command="scale {} --bandwidth 10Gb/s --workers 1..8"),
        Sample(
            name="net.yaml",
            content=profile,
            command="scale {} --bandwidth 10Gb/s --workers 4 --mode async-ps --fidelity both --json",
        ),
    ]


def _clusters(folder: Path) -> list[Sample]:
    simulate = f"simulate llama3-8b --cluster {{}} --global-batch 16 --seq-len 512 --strategy@{STRATEGY}"
    found = []
    for name in ("dgx-h100", "a100-pcie", "mi300x-platform"):
        data = yaml.safe_load((ROOT / "spaces" / "clusters" / "data" / "clusters" / f"{name}.yaml").read_text())
        found.append(Sample(name="cluster.yaml", content=data, command="show {}"))
        found.append(Sample(name="cluster.yaml", content=data, command=simulate))
    own = {
        "device": "h100-sxm", "devices_per_node": 8, "max_devices": 64, "host": {"rate": "50GB/s", "sockets": 2},
        "scale_up": {"kind": "nvswitch", "size": 8, "rate": "450GB/s"},
        "network": {"kind": "roce", "nics_per_node": 8, "nic_rate": "400Gb/s", "leaf_nodes": 2, "oversubscription": 2},
        "overlap": {"computation": 1.1, "communication": 1.2}, "usd_per_device_hour": 2.5,
    }  # fmt: skip
    groups = {"groups": [{"cluster": "dgx-h100", "devices": 8}, {"cluster": "dgx-a100-80", "devices": 8}]}
    found.append(Sample(name="own.yaml", content=own, command=simulate))
    found.append(Sample(name="own.json", content=own, command="show {}"))
    found.append(Sample(name="groups.yaml", content=groups, command=simulate.replace("dp2", "dp4")))
    for name, strategy in (("llama3-8b", "tp2 dp4 mbs1"), ("mixtral-8x7b", "dp8 ep8 mbs1"), ("gemma-2-9b", "tp8 mbs1")):
        model = yaml.safe_load((ROOT / "spaces" / "models" / "data" / f"{name}.yaml").read_text())
        found.append(Sample(name="model.yaml", content=model, command=f"simulate {{}} {REQUEST} --strategy@{strategy}"))
        found.append(Sample(name="model.yaml", content=model, command="show {}"))
    return found


def _configs() -> list[Sample]:
    found = []
    for path in sorted(CONFIGS.iterdir()):
        if path.suffix == ".json":
            content: Any = json.loads(path.read_text())
        elif path.suffix in (".yaml", ".yml"):
            content = yaml.safe_load(path.read_text())
        elif path.suffix in (".toml", ".sh", ".py"):
            content = path.read_text()
        else:
            continue
        found.append(Sample(name=path.name, content=content, command="import {}"))
        if path.suffix in (".yaml", ".yml"):
            found.append(Sample(name=path.name, content=path.read_text(), command="import {}"))
    log = "".join(
        f" iteration {step:8d}/ 100 | consumed samples: {16 * step:12d} |"
        f" elapsed time per iteration (ms): {900 + step}.5 |"
        " learning rate: 1.0E-04 | global batch size:    16 | lm loss: 1.0E+01 | number of nan iterations: 0 |\n"
        for step in range(1, 20)
    )
    present = (
        f"search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 16 --seq-len 512 --top 3 --baseline@{STRATEGY}"
    )
    found.append(Sample(name="train.log", content=log, command=f"{present}@--measured {{}}"))
    return found


def _words() -> list[Sample]:
    """Flags and strategies: the mutated text is the words of a command, one a line."""
    llama = f"llama3-8b\n{REQUEST}".replace(" ", "\n")
    requests = (
        f"simulate\n{llama}\n--strategy\n{STRATEGY}",
        f"simulate\n{llama}\n--strategy\ntp1 dp8 ep8 mbs1\n--moe-imbalance\n1.2".replace("llama3-8b", "mixtral-8x7b"),
        f"simulate\n{llama}\n--strategy\npp4 dp2 mbs1 vpp2 schedule=interleaved\n--fidelity\nevents",
        f"explain\n{llama}\n--strategy\ntp2 dp4 mbs1 zero1",
        f"search\n{llama}\n--gpus\n8\n--usd-per-gpu-hour\n2.5\n--tokens\n15T\n--train-within\n9000d\n--oom-risk\n5%",
        "search\nresnet50\n--cluster\naws-p3dn\n--gpus\n8\n--global-batch\n64/gpu\n--top\n3\n--json",
        "simulate\nresnet50\n--cluster\naws-p3dn\n--global-batch\n512\n--strategy\ndata8",
        "scale\nresnet50\n--cluster\naws-p3dn\n--workers\n2..8\n--batch\n32\n--slow\n1=2.0\n--jitter\n0.1\n--seed\n1",
        "limits\nresnet50\n--cluster\nabci-v100\n--gpus\n4..16\n--global-batch\n64/gpu",
        "improve\nresnet50\n--cluster\naws-p3dn\n--gpus\n4\n--batch\n32\n--memory\n16GiB",
        f"compare\n{llama}\n--strategy\ntp2 dp4 mbs1\n--strategy\ntp4 dp2 mbs1",
        # The time limit: 300,000 evaluations are work that was asked for, not a hang.
        f"search\n{llama}\n--gpus\n8\n--sampler\nrandom\n--per-stage\nlayers\n--evaluations\n20\n--seed\n1"
        "\n--time-limit\n0.5",
    )
    return [Sample(name="words", content=text, command="") for text in requests]
