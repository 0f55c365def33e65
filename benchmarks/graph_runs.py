"""Measured runs of operator graphs, from the published tables of data-parallel scaling, in the columns of ``validate``.

    python -m benchmarks.graph_runs DIR OUT.csv && forerun validate OUT.csv --by source

DIR holds ``paradl.csv`` and tables ``dp_*.csv``. Rows whose model, machine or framework has no entry of its own in the
catalogue are left out, as are those whose gradients pass through parameter servers.
"""

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.paradl import MODELS, cases
from forerun.search.measured.validate.columns import OPTIONAL, REQUIRED
from forerun.search.measured.validate.graphs import graph_named
from forerun.spaces.clusters import load_cluster
from forerun.spaces.files import csv_text, write_text

MACHINES = (
    (r"dgx a100.*40gb|a100-sxm4-40", "dgx-a100-40"),
    (r"dgx a100|a100-sxm4", "dgx-a100-80"),
    (r"dgx h100", "dgx-h100"),
    (r"dgx-2|v100-sxm3", "dgx2-v100"),
    (r"dgx-1.*32|v100-sxm2-32", "dgx1-v100"),
    (r"p100", "dgx1-p100"),
    (r"dgx-1|v100-sxm2", "dgx1-v100-16"),
    (r"abci", "abci-v100"),
)
"""Machines of the catalogue by a pattern of their name, the first that fits."""
FRAMEWORKS = (("chainer", "chainermn"), ("horovod", "horovod"), ("pytorch", "pytorch-ddp"))
"""Exchange of gradients by a word of the framework's name."""


def paradl(path: Path) -> Iterator[dict[str, str]]:
    """Yield the runs of ParaDL's tables: splits of every kind on ABCI."""
    for case in cases(path):
        # Synthetic samples are not loaded, which no profile says.
        if case.synthetic or case.model not in MODELS:
            continue
        yield {
            "run_id": case.identity,
            "source": f"paradl {case.family}",
            "cluster": "abci-v100",
            "device": load_cluster("abci-v100").device.name,
            "gpus": str(case.gpus),
            "model": MODELS[case.model][0],
            "precision": "fp32",
            "framework": "chainermn",
            "strategy": case.split,
            "global_batch": str(case.batch),
            "step_time_s": str(case.measured_s),
            "group": case.group,
        }


def scaling(path: Path) -> Iterator[dict[str, str]]:
    """Yield the data-parallel runs of a scaling table on machines of the catalogue, one node each."""
    with path.open(encoding="utf-8") as text:
        for row in csv.DictReader(text):
            hardware = row["hardware"].lower()
            cluster = next((name for pattern, name in MACHINES if re.search(pattern, hardware)), None)
            framework = next((name for word, name in FRAMEWORKS if word in row["framework"].lower()), None)
            if cluster is None or framework is None or graph_named(row["model_name"]) is None or row["nodes"] != "1":
                continue
            if "server" in row["variable_update"] or not row["throughput_samples_per_s"] or not row["global_batch"]:
                continue
            yield {
                "run_id": row["case_id"],
                "source": path.stem,
                "cluster": cluster,
                "device": load_cluster(cluster).device.name,
                "gpus": row["gpus"],
                "model": row["model_name"],
                "precision": {"amp": "fp16", "mixed fp16": "fp16"}.get(row["precision"].lower(), row["precision"]),
                "framework": framework,
                "strategy": f"data{row['gpus']}",
                "global_batch": str(int(float(row["global_batch"]))),
                "step_time_s": str(float(row["global_batch"]) / float(row["throughput_samples_per_s"])),
                "group": "",
            }


def main() -> None:
    """Write the runs of all tables."""
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    rows = list(paradl(folder / "paradl.csv"))
    for path in sorted(folder.glob("dp_*.csv")):
        rows += scaling(path)
    write_text(target, csv_text((*REQUIRED, *OPTIONAL), [{"outcome": "ok", **row} for row in rows]))
    print(f"{len(rows)} runs in {target}")


if __name__ == "__main__":
    main()
