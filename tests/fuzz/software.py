"""What users say of their software and machines: frameworks, switches, launch files, topologies, facts of failures."""

import json
from pathlib import Path

import yaml

from tests.fuzz.sample import CONFIGS, REQUEST, ROOT, SEARCH, STRATEGY, Sample, quiet


def software(folder: Path) -> list[Sample]:
    """Return the documents; ``folder`` takes what forerun writes for them."""
    return [*_frameworks(), *_launch_files(folder), *_topologies(folder), *_costs(), *_words()]


def _frameworks() -> list[Sample]:
    own = {
        "like": "megatron-lm", "version": "0.14", "switches": {"tp-comm-overlap": "on", "dispatcher": "alltoall"},
        "overlap_tensor": 0.4, "host_layer_s": 1e-4, "master_bytes": 4, "legality": {"zero_stages": [0, 1]},
    }  # fmt: skip
    simulate = f"simulate llama3-8b {REQUEST} --framework {{}} --strategy@tp2 dp4 mbs1"
    # A whole profile, stated again by a file that is like it: every field is there to be changed.
    data = ROOT / "spaces" / "frameworks" / "data"
    whole = {"like": "megatron-lm", **yaml.safe_load((data / "megatron-lm.yaml").read_text())}
    whole.pop("name", None)
    found = [
        Sample(name="ours.yaml", content=own, command=simulate),
        Sample(name="ours.yaml", content=own, command=f"{SEARCH} --framework {{}}"),
        Sample(name="ours.yaml", content=own, command="show {}"),
        Sample(name="whole.yaml", content=whole, command=simulate),
        Sample(
            name="whole.yaml",
            content=whole,
            command=f"simulate mixtral-8x7b {REQUEST} --framework {{}} --strategy@pp2 dp8 ep8 mbs1 zero1",
        ),
        Sample(name="ours.json", content=own, command=simulate),
    ]
    plan = {
        "models": ["llama3-8b"], "clusters": ["dgx-h100"], "workloads": [{"global_batch": 16, "seq_len": 512}],
        "budgets": [{"gpus": 8}], "frameworks": ["megatron-lm@0.10"], "switches": {"tp-comm-overlap": True}, "top": 3,
    }  # fmt: skip
    return [*found, Sample(name="plan.yaml", content=plan, command="sweep {} --out {folder}/out --workers serial")]


def _launch_files(folder: Path) -> list[Sample]:
    """Every format that forerun writes, read again and as what runs now."""
    run, launch = folder / "launched", folder / "launch"
    quiet(f"{SEARCH} --out {run} --set zero=0,1 --set recompute=none")
    quiet(f"export {run} --format all --out {launch}")
    found = []
    for path in sorted(launch.rglob("*")):
        if path.is_dir() or path.suffix in (".md", ".sbatch") or path.name == "hostfile":
            continue
        text = path.read_text()
        found.append(Sample(name=path.name, content=text, command="import {} --gpus 8"))
        if path.suffix in (".yaml", ".yml"):
            found.append(Sample(name=path.name, content=yaml.safe_load(text), command="import {} --gpus 8 --json"))
        elif path.suffix == ".json":
            found.append(Sample(name=path.name, content=json.loads(text), command="import {} --gpus 8"))
    script = (CONFIGS / "llama3_8b_fp8.sh").read_text()
    asked = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 16 --seq-len 512 --top 3 --baseline {}"
    return [*found, Sample(name="llama3_8b_fp8.sh", content=script, command=asked)]


def _topologies(folder: Path) -> list[Sample]:
    gen4 = 'link_speed="16.0 GT/s PCIe" link_width="16"'
    sockets = []
    for first in (0, 2):
        inside = "".join(
            f'<pci busid="0000:f{n}:00.0" class="0x060400" {gen4}>'
            f'<pci busid="0000:0{n}:00.0" class="0x030200" vendor="0x10de" device="0x20b2" {gen4}>'
            f'<gpu dev="{n}" sm="80" rank="{n}" gdr="1">'
            '<nvlink target="fffffff:ff:ff.0" count="12" tclass="0x068000"/></gpu></pci>'
            f'<pci busid="0000:a{n}:00.0" class="0x020700" vendor="0x15b3" device="0x101b" {gen4}>'
            f'<nic><net name="mlx5_{n}" dev="{n}" speed="200000" port="1"/></nic></pci></pci>'
            for n in (first, first + 1)
        )
        sockets.append(f'<cpu numaid="{first // 2}" affinity="ff" arch="x86_64">{inside}</cpu>')
    nccl = f'<system version="1">{"".join(sockets)}</system>'
    rows = ["X\tNV12\tSYS\tPXB", "NV12\tX\tSYS\tSYS", "PXB\tSYS\tX\tX"]
    smi = "GPU 0: NVIDIA A100-SXM4-80GB\nGPU 1: NVIDIA A100-SXM4-80GB\n\n\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
    smi += f"GPU0\t{rows[0][:6]}\t0-31\t0\nGPU1\tNV12\tX\t0-31\t0\n\nLegend:\n\n  X    = Self\n"
    beside = folder / "topologies"
    beside.mkdir()
    (beside / "mine.yaml").write_text("topology: node.xml\ndevice: a100-sxm4-80\nnetwork: {leaf_nodes: 4}\n")
    flat = "--global-batch 16 --seq-len 512 --strategy@tp2 dp2 mbs1"
    return [
        Sample(name="node.xml", content=nccl, command="show {}"),
        Sample(name="node.xml", content=nccl, command=f"simulate llama3-8b --cluster {{}} {flat}"),
        Sample(name="node.xml", content=nccl, command="show {folder}/mine.yaml", beside=beside),
        Sample(name="node.txt", content=smi, command="show {}"),
    ]


def _costs() -> list[Sample]:
    fused = {"fused": [{"operators": ["conv1", "batch_norm1"], "forward": "10us", "backward": 1e-5}]}
    improve = "improve resnet50 --cluster aws-p3dn --gpus 4 --batch 32 --fused {}"
    return [Sample(name="fused.yaml", content=fused, command=improve)]


def _words() -> list[Sample]:
    llama = f"llama3-8b {REQUEST}"
    requests = (
        f"search {llama} --gpus 8 --goodput failures=2e-5,recovery=10min,interval=30min,storage=1GB/s,spares=1",
        f"search {llama} --gpus 8 --with tp-comm-overlap=on --without graphs --framework megatron-lm@0.10",
        f"search {llama} --gpus 8 --objective throughput,gpus --train-within 9000d --tokens 1T --usd-per-gpu-hour 2",
        f"search {llama} --gpus 8 --set tp=1,2 --set recompute=none,full --refine 2 --json",
        f"search mixtral-8x7b {REQUEST} --gpus 16 --moe-imbalance 1.2 --top 2 --all-variants",
        f"simulate {llama} --strategy {STRATEGY.replace(' ', ',')} --slow 0=1.5 --jitter 0.02 --fidelity events",
    )
    return [Sample(name="words", content=text.replace(" ", "\n"), command="") for text in requests]
