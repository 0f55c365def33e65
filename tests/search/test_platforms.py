"""Launches for SkyPilot, Kubernetes and Ray: their documents are of the right form, and every node gets its rank."""

import ast
import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from forerun_launches import DENSE

from forerun.search.formats import Launch, format_named
from forerun.search.formats.express import machine_facts
from forerun.search.formats.job import Job
from forerun.search.formats.platforms import ACCELERATORS, JOBSET, RAY, SKY, placed
from forerun.spaces.clusters import device_names, load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

STUB = 'echo "$NODE_RANK $MASTER_ADDR"\n'
TEXT, WHOLE = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of a mapping with no other keys."""
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


# What of SkyPilot's task and of the CRD of JobSet v1alpha2 is used, written anew from their references.
TASK = closed(
    ("name", "num_nodes", "resources", "run"),
    name=TEXT,
    workdir=TEXT,
    num_nodes=WHOLE,
    run=TEXT,
    resources=closed(
        ("accelerators",),
        accelerators={"type": "string", "pattern": r"^[A-Z][A-Z0-9a-z-]*:\d+$"},
        network_tier={"enum": ["standard", "best"]},
        image_id={"type": "string", "pattern": "^docker:"},
    ),
)
LABEL = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?$"}
CONTAINER = closed(
    ("name", "image", "command", "resources"),
    name=LABEL,
    image=TEXT,
    command={"type": "array", "items": TEXT},
    resources=closed(("limits",), limits={"type": "object", "additionalProperties": WHOLE, "minProperties": 1}),
    volumeMounts={"type": "array", "items": closed(("name", "mountPath"), name=LABEL, mountPath=TEXT)},
)
POD = closed(
    ("restartPolicy", "containers"),
    restartPolicy={"enum": ["Never", "OnFailure"]},
    containers={"type": "array", "items": CONTAINER, "minItems": 1},
    volumes={
        "type": "array",
        "items": closed(
            ("name",),
            name=LABEL,
            configMap=closed(("name",), name=LABEL),
            emptyDir=closed(medium={"enum": ["Memory"]}, sizeLimit=TEXT),
        ),
    },
)
BATCH = closed(
    ("parallelism", "completions", "completionMode", "template"),
    parallelism=WHOLE,
    completions=WHOLE,
    completionMode={"enum": ["Indexed"]},
    backoffLimit={"type": "integer", "minimum": 0},
    activeDeadlineSeconds=WHOLE,
    template=closed(("spec",), spec=POD),
)
SET = closed(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=closed(("name",), name=LABEL, labels={"type": "object", "additionalProperties": TEXT}),
    spec=closed(
        ("replicatedJobs",),
        failurePolicy=closed(maxRestarts={"type": "integer"}),
        replicatedJobs={
            "type": "array",
            "items": closed(("name", "template"), name=LABEL, replicas=WHOLE, template=closed(("spec",), spec=BATCH)),
        },
    ),
)


def launch(**job: Any) -> Launch:
    """Return a launch on two nodes of eight H100."""
    return Launch(
        strategy=parse_strategy("tp2 pp1 dp8 mbs1 zero1"),
        model=DENSE,
        workload=Workload(global_batch=64, seq_len=2048, precision="bf16"),
        devices_per_node=8,
        name="Run 1; $(x)",
        device="h100-sxm",
        vendor="NVIDIA",
        job=Job(**job),
    )


def files(**job: Any) -> dict[str, str]:
    made = launch(**job)
    return dict(placed(made, format_named("megatron-lm").express(made)))


def started(folder: Path, script: str, **variables: str) -> str:
    """Run the stand-in of ``launch.sh`` and return the line of its node."""
    (folder / "launch.sh").write_text(STUB)
    environment = {"PATH": os.environ["PATH"], **variables}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def test_a_task_of_skypilot_starts_every_node(tmp_path: Path) -> None:
    made = files(platform="skypilot", container="nvcr.io#nvidia/nemo:25.09")
    task = yaml.safe_load(made[SKY])

    jsonschema.validate(task, TASK)
    assert "slurm.sbatch" not in made
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (2, "H100:8")
    assert task["resources"]["image_id"] == "docker:nvcr.io/nvidia/nemo:25.09"
    told = started(tmp_path, task["run"], SKYPILOT_NODE_RANK="1", SKYPILOT_NODE_IPS="10.0.0.4\n10.0.0.5")
    assert told == "1 10.0.0.4"


def test_a_jobset_starts_every_node_in_a_queue_of_kueue(tmp_path: Path) -> None:
    made = files(platform="kubernetes", container="nvcr.io#nvidia/nemo:25.09", partition="team", time="04:00:00")
    config, jobset = yaml.safe_load_all(made[JOBSET])

    jsonschema.validate(jobset, SET)
    assert config["data"]["launch.sh"] == made["launch.sh"]
    assert jobset["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    batch = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (batch["completions"], batch["activeDeadlineSeconds"]) == (2, 14400)
    container = batch["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    script = container["command"][2].replace("/launch/*", str(tmp_path / "launch.sh"))
    script = script.replace("/tmp/launch", str(tmp_path / "copy"))
    name = jobset["metadata"]["name"]
    assert started(tmp_path, script, JOB_COMPLETION_INDEX="1") == f"1 {name}-node-0-0.{name}"


def test_a_job_of_ray_starts_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = files(platform="ray")
    asked: dict[str, Any] = {}

    class Trainer:
        """Runs the loop of one worker."""

        def __init__(self, loop: Any, *, train_loop_config: Any, scaling_config: Any) -> None:
            asked.update(scaling_config, files=train_loop_config["files"])
            self.fit = lambda: loop(train_loop_config)

    ray, train, torch = (types.ModuleType(name) for name in ("ray", "ray.train", "ray.train.torch"))
    context = types.SimpleNamespace(get_world_rank=lambda: 1)
    vars(train).update(ScalingConfig=dict, get_context=lambda: context)
    vars(torch).update(TorchTrainer=Trainer)
    vars(ray).update(train=train)
    for name, module in (("ray", ray), ("ray.train", train), ("ray.train.torch", torch)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.4")
    (tmp_path / "launch.sh").write_text(f'echo "$NODE_RANK $MASTER_ADDR $MASTER_PORT" > {tmp_path}/said\n')
    path = tmp_path / RAY
    path.write_text(made[RAY])

    exec(compile(ast.parse(made[RAY]), str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})

    assert (tmp_path / "said").read_text() == "1 10.0.0.4 29500\n"
    assert (asked["num_workers"], asked["resources_per_worker"]["GPU"]) == (2, 8)
    assert asked["files"] == {"launch.sh": (tmp_path / "launch.sh").read_text()}


@pytest.mark.parametrize(
    ("job", "changes", "reason"),
    [
        ({"platform": "kubernetes"}, {}, "give --container"),
        ({"platform": "kubernetes", "container": "/images/a.sqsh"}, {}, "only pyxis starts"),
        ({"platform": "kubernetes", "container": "a:1"}, {"vendor": "Google"}, "no device plugin .* of Google"),
        ({"platform": "skypilot", "partition": "gpu"}, {}, "--partition"),
        ({"platform": "skypilot"}, {"device": "ascend-910b"}, "no accelerator for ascend-910b"),
        ({"platform": "ray", "container": "a:1"}, {}, "--container"),
        ({"platform": "ray"}, {"vendor": "Google"}, "starts nothing on devices of Google"),
        ({"platform": "ray"}, {"vendor": "AWS", "device": "trainium2"}, "starts nothing on devices of AWS"),
    ],
)
def test_what_a_platform_cannot_run_is_refused_by_name(
    job: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    made = dataclasses.replace(launch(**job), **changes)

    with pytest.raises(RequestError, match=reason):
        placed(made, {"launch.sh": ""})


def test_a_format_without_a_script_and_a_platform_that_is_none_are_refused() -> None:
    with pytest.raises(RequestError, match=r"writes no launch\.sh"):
        placed(launch(platform="ray"), {"forerun.yaml": ""})
    with pytest.raises(RequestError, match="unknown platform 'aws'"):
        Job(platform="aws")


def test_names_of_accelerators_are_of_devices_of_the_catalogue() -> None:
    assert {*ACCELERATORS} <= {*device_names()}


@pytest.mark.parametrize(
    ("vendor", "device", "plugin", "resource"),
    [
        ("NVIDIA", "h100-sxm", "nvidia.com/gpu", "GPU"),
        ("AMD", "mi300x", "amd.com/gpu", "GPU"),
        ("Intel", "gaudi3", "habana.ai/gaudi", "HPU"),
        ("Huawei", "ascend-910b", "huawei.com/Ascend910", "NPU"),
        ("Huawei", "ascend-910c-die", "huawei.com/Ascend910", "NPU"),
        ("AWS", "trainium2", "aws.amazon.com/neuron", None),
    ],
)
def test_a_node_is_asked_for_by_the_resource_that_counts_its_devices(
    vendor: str, device: str, plugin: str, resource: str | None
) -> None:
    of_vendor = dataclasses.replace(launch(platform="kubernetes", container="a:1"), vendor=vendor, device=device)
    _, jobset = yaml.safe_load_all(placed(of_vendor, {"launch.sh": ""})[JOBSET])
    (container,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]

    assert container["resources"]["limits"] == {plugin: 8}
    if resource is not None:
        job = dataclasses.replace(of_vendor, job=Job(platform="ray"))
        assert f'"{resource}": 8' in placed(job, {"launch.sh": ""})[RAY]


def test_a_rank_is_one_die_where_software_sees_dies() -> None:
    assert load_cluster("frontier-mi250x").devices_per_node == 8
    facts = machine_facts(load_cluster("ascend-cloudmatrix-384"))
    made = dataclasses.replace(launch(), strategy=parse_strategy("tp4 dp8 mbs1"), **facts)

    files = format_named("mindspeed").express(made)

    assert "GPUS_PER_NODE=16" in files["launch.sh"]
    assert "--gres=npu:16" in files["slurm.sbatch"]
