"""Documents that once ended in an internal error, or were believed: each has one sentence for its answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.search.cli import main

TRAINING = "--cluster dgx-h100 --global-batch 16 --seq-len 1024".split()
STRATEGY = ["--strategy", "tp2 pp1 dp4 mbs1 zero1 sp"]
SEARCH = ["search", "llama3-8b", *TRAINING]


def timeline(**changes: Any) -> str:
    """A timeline of one task as ``simulate --trace`` writes it."""
    task = {"ph": "X", "name": "forward 0", "cat": "forward", "pid": 0, "tid": 0, "ts": 0, "dur": 10, **changes}
    stage = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "stage 0"}}
    return json.dumps({"traceEvents": [stage, task]})


def dpro(**changes: Any) -> str:
    event = {"ph": "X", "name": "FW.a", "pid": "host0.rank0", "ts": 0, "dur": 10, "args": {"step": 0}, **changes}
    return json.dumps({"traceEvents": [event]})


def kimi(**changes: Any) -> str:
    linear = {"kda_layers": [1, 2], "num_heads": 4, "head_dim": 16, **changes}
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 4}
    return json.dumps({"model_type": "kimi_linear", "vocab_size": 100, **sizes, "linear_attn_config": linear})


def zamba(*kinds: str) -> str:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": len(kinds), "vocab_size": 100}
    return json.dumps({"model_type": "zamba2", **sizes, "layers_block_type": kinds})


def nccl(**changes: Any) -> str:
    devices = [{"rank": rank, "hostname": "a", "device": rank} for rank in range(8)]
    line = {"size": 4096, "experiment_name": "all_reduce_perf", "in_place": {"time": 11.0}, **changes}
    return json.dumps({"config": {"devices": devices}, "results": [line]})


def runs(**changes: object) -> str:
    sizes = {
        "layers": 32,
        "hidden": 4096,
        "ffn_hidden": 11008,
        "heads": 32,
        "vocab": 32000,
        "gated_mlp": 1,
        "seq_len": 2048,
    }
    degrees = {"dp": 8, "tp": 1, "pp": 1, "micro_batch": 2, "global_batch": 64, "recompute": "none", "step_time_s": 4.3}
    row = {"run_id": "a-1", "device": "a100-sxm4-80", "gpus": 8, "model": "own", **sizes, "precision": "bf16"}
    row |= {"framework": "megatron-lm", **degrees, "outcome": "ok", **changes}
    return ",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n"


def lab(efficiency: float = 0.9, architecture: str = "Hopper sm90") -> str:
    memory = f"memory: 96GiB, memory_rate: 4TB/s, memory_efficiency: {efficiency!r}"
    peak = (
        f"peak: {{bf16: 800TFLOP/s}}, matmul_ceiling: {{bf16: 0.8}}, compute_units: 132, architecture: {architecture!r}"
    )
    return f"device: {{name: own, title: own, {memory}, {peak}}}\ndevices_per_node: 8\nmax_devices: 8\n"


REPLAY, SHOW, TREE = (
    ["replay", "it.json"],
    ["show", "it.json"],
    ["simulate", "llama3-8b", *TRAINING, "--tree", "it.yaml"],
)
NCCL = ["profile", "llama3-8b", *TRAINING, "--gpus", "8", "--nccl-tests", "it.json", "--out", "p.yaml"]
CASES: dict[str, tuple[list[str], str, str]] = {
    "a stream that is no number": (REPLAY, timeline(tid=float("inf")), "finite|tid"),
    "a stream that there is none of": (REPLAY, timeline(tid=1 << 32), "tid"),
    "a stage beyond numbers": (REPLAY, timeline(pid=10**30), "pid"),
    "a task that starts beyond numbers": (REPLAY, timeline(ts=10**30), "ts"),
    "a task that ends before it starts": (REPLAY, timeline(dur=-1), "dur"),
    "a stage of dPRO that ends before it starts": (REPLAY, dpro(dur=-1), "dur=-1"),
    "a size that is missing": (SHOW, kimi(head_dim=None), "head_dim"),
    "a list as a layer's number": (SHOW, kimi(kda_layers=[1, [2]]), "kda_layers must be a list of int"),
    "a kind of layer that there is none of": (SHOW, zamba("mamba", "hybrid", "-1T"), "kind of layer"),
    "a kernel in a list of kernels": (
        SHOW,
        json.dumps(
            {
                "model_type": "textnet",
                "stem_kernel_size": 3,
                "stem_out_channels": 64,
                "stem_stride": 2,
                "hidden_sizes": [64, 64],
                "conv_layer_kernel_sizes": [[[3, [3, 3]]]],
                "conv_layer_strides": [[1]],
            }
        ),
        "do not fit together",
    ),
    "a patch of no width": (
        SHOW,
        json.dumps(
            {
                "model_type": "vit",
                "patch_size": [0, 16],
                "image_size": 224,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
            }
        ),
        "patch_size must be a positive whole number",
    ),
    "a message of fewer bytes than none": (NCCL, nccl(size=-4096), "moves -4096 bytes"),
    "a message that never ends": (NCCL, nccl(in_place={"time": "inf"}), "in inf s"),
    "layers that no digits count": (TREE, "children: [{layers: 0-" + "9" * 5000 + "}]", "no layer|layers"),
    "a table of more layers than any model has": (
        ["validate", "it.json"],
        runs(layers=1 << 32),
        "at most 10,000 layers",
    ),
    "a share that is next to nothing": (["show", "it.yaml"], lab(5e-324), "memory_efficiency"),
    "an architecture of blanks": (["show", "it.yaml"], lab(architecture="  "), "architecture"),
    "devices that no whole number counts": (TREE, "{devices: 0-²}", "ranges like 0-7"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_document_gets_one_sentence(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    argv, text, words = CASES[name]
    (tmp_path / ("it.yaml" if "it.yaml" in argv else "it.json")).write_text(text, encoding="utf-8")
    assert main(argv) == 2
    message = capsys.readouterr().err
    assert "our fault" not in message
    assert any(word in message for word in words.split("|"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--gpus", "8", "--set", "tp=²"], "choices of tp are whole numbers"),
        (["--gpus", "8", "--set", "mbs=" + "9" * 5000], "choices of mbs are whole numbers"),
        (["--gpus", "8", "--tokens", "1T", "--train-within", "e1 d"], "a number with a unit"),
    ],
)
def test_a_flag_gets_one_sentence(flags: list[str], words: str, capsys: Any) -> None:
    assert main([*SEARCH, *flags]) == 2
    assert words in capsys.readouterr().err


def test_an_exchange_whose_cause_is_the_last_span_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a message waited for has nothing after it on its lane, so that no call belongs to it."""
    send = {"ph": "X", "pid": "host1.rank1", "tid": "n", "dur": 50}
    events = [
        {
            **send,
            "name": "Comm.conv1.SEND",
            "ts": 540,
            "args": {"step": 0, "cnt": 0, "name": "conv1~>0_0_0_0", "size": 4096},
        },
        {**send, "name": "UPDATE_0", "tid": "c", "ts": 640, "dur": 20, "args": {"step": 0, "cnt": 0}},
        {
            **send,
            "name": "Comm.conv2.SEND",
            "ts": 1070,
            "args": {"step": 1, "cnt": 1, "name": "conv2~>0_0_0_0", "size": 4096},
        },
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    assert main(["replay", str(path)]) in (0, 2)
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("layers", [{"05": [1]}, {"00": 3}, [1], "x", {"17": {"head_dim": "wide"}}])
def test_settings_of_single_layers_that_are_none(
    layers: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": {"model_type": "gemma4_unified_text", "per_layer_config": layers}}))
    assert main(["show", str(path)]) == 2
    assert "per_layer_config" in (err := capsys.readouterr().err) or "head_dim" in err
