"""Published training rates of convolutional networks on one GPU against the cost rules, nothing given.

    python benchmarks/one_gpu.py FOLDER [--write]

FOLDER holds ``dp_dlperf.csv``, ``dp_scaling.csv`` and ``dp_lambda_tf.csv``. Rows whose data come from storage are left
out: they measure that. ``--write`` replaces the dated result beside this script.
"""

import argparse
import csv
import dataclasses
import datetime
import os
import platform
import re
import statistics
from collections import defaultdict
from pathlib import Path

from forerun.simulator.opgraph import GraphContext, score_splits
from forerun.spaces.clusters import load_cluster, load_device
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.builder import Builder
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.opgraph.split import Split

FILES = ("dp_dlperf.csv", "dp_scaling.csv", "dp_lambda_tf.csv")
DEVICES = {
    r"V100": "v100-sxm2-16",
    r"A100[-_ ]PCIE": "a100-pcie-80",
    r"A100": "a100-sxm4-40",
    r"P100": "p100-sxm2",
    r"K80": "k80",
}
MODELS = {"resnet50": "resnet50", "resnet50v15": "resnet50", "vgg16": "vgg16", "inceptionv3": "inception-v3"}


def device_of(text: str) -> str | None:
    """Return the device of a row, None for those that the catalogue does not have."""
    return next((name for pattern, name in DEVICES.items() if re.search(pattern, text)), None)


BROKEN = ("lambda_0399", "lambda_0615")
"""VGG-16 in fp16 at a fifth of its rate in fp32 on the same machine."""


def precision_of(text: str, hardware: str, device: str) -> str:
    """Return what the row computed in: fp32 of Ampere is tf32 but for TensorFlow before 2.4, which did not use it."""
    if re.search("amp|fp16|mixed", text, re.IGNORECASE):
        return "fp16"
    if "TF2_3" in hardware:
        return "fp32"
    return "tf32" if "tf32" in load_device(device).peak_flops_per_s else "fp32"


def rate(model: str, device: str, precision: str, batch: int, *, fused: bool) -> float:
    """Return samples per second by rule."""
    cluster = dataclasses.replace(load_cluster("abci-v100"), device=load_device(device))
    profile = dataclasses.replace(load_graph_profile("pytorch-ddp"), fuses_elementwise=fused)
    context = GraphContext(model=load_graph_model(model), cluster=cluster, profile=profile, precision=precision)
    return float(score_splits(context, [Split()], [batch]).samples_per_s[0])


ALEXNET_S = 1 / 1636.8273
"""Seconds per sample of AlexNet's profile on V100 in fp32 (ParaDL), at a batch that is not stated."""


def alexnet_line() -> str:
    """Return how ParaDL's AlexNet is predicted: the network of 2012 without groups (1.135 GMAC), not that of the
    catalogue, which has 0.714."""
    b = Builder(3, 227, 227)
    x = b.pool(b.relu(b.conv(b.start, 96, 11, stride=4)), 3, stride=2)
    x = b.pool(b.relu(b.conv(x, 256, 5, padding=2)), 3, stride=2)
    x = b.relu(b.conv(b.relu(b.conv(x, 384, 3, padding=1)), 384, 3, padding=1))
    x = b.flatten(b.pool(b.relu(b.conv(x, 256, 3, padding=1)), 3, stride=2))
    x = b.relu(b.linear(b.relu(b.linear(x, 4096)), 4096))
    b.loss(b.linear(x, 1000))
    context = GraphContext(
        model=b.build("alexnet without groups", "Krizhevsky et al. 2012"),
        cluster=load_cluster("abci-v100"),
        profile=load_graph_profile("chainermn"),
        precision="fp32",
    )
    batches = [64, 128, 256, 512]
    scores = score_splits(context, [Split()] * len(batches), batches)
    found = [1 - seconds / batch / ALEXNET_S for seconds, batch in zip(scores.device_s, batches, strict=True)]
    low, high = -max(found), -min(found)
    return (
        f"AlexNet of ParaDL's profile (V100, fp32; {context.model.macs / 1e9:.3f} GMAC: without groups, batch not "
        f"stated): seconds {low:+.0%} to {high:+.0%} for batches of 512 to 64."
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="replace the dated result")
    options = parser.parse_args()
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for name in FILES:
        with (options.folder / name).open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                model = MODELS.get(re.sub("[^a-z0-9]", "", row["model_name"].lower()))
                device = device_of(row["hardware"])
                batch = re.match("[0-9]+", row["batch_per_gpu"])
                if row["gpus"] != "1" or model is None or device is None or row.get("data") == "real" or not batch:
                    continue
                if row["case_id"] in BROKEN:
                    continue
                precision = precision_of(row["precision"], row["hardware"], device)
                predicted = rate(model, device, precision, int(batch[0]), fused="XLA" in row["framework"])
                found[device, model, precision].append(predicted / float(row["throughput_samples_per_s"]) - 1.0)
    lines = [
        "# One GPU: published rates of convolutional networks against the cost rules",
        "",
        f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}).",
        "Predicted over measured rate, less one; median over frameworks. Of these, VGG-16 on V100 and A100",
        "set the share that convolutions reach on matrix units; nothing else was fitted to them. The peak of a K80 is",
        "that of its base clock: both dies share one power limit (with the boost clock all three networks are 1.8",
        "to 2.2 times too fast here).",
        "",
        "| device | model | precision | rows | median | from | to |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, errors in sorted(found.items()):
        spread = f"{statistics.median(errors):+.0%} | {min(errors):+.0%} | {max(errors):+.0%}"
        lines.append(f"| {' | '.join(key)} | {len(errors)} | {spread} |")
    lines += ["", alexnet_line()]
    medians = [abs(statistics.median(errors)) for errors in found.values()]
    lines += ["", f"Median of the medians, sign left out: {statistics.median(medians):.0%}.", ""]
    text = "\n".join(lines)
    print(text)
    if options.write:
        (Path(__file__).parent / "results" / f"{datetime.date.today()}-one-gpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
