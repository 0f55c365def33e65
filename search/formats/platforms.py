"""Files that start ``launch.sh`` on the nodes of platforms other than Slurm: SkyPilot, Kubernetes, Ray.

Each platform gives every node its rank and the address of the first node, like ``slurm.sbatch``. Sources: SkyPilot's
"Distributed multi-node jobs" (``SKYPILOT_NODE_RANK``, ``SKYPILOT_NODE_IPS``), JobSet ``v1alpha2`` with the label of
Kueue's queues, and ``ray.train.torch.TorchTrainer``. Names of accelerators: SkyPilot's list
(``docs/source/compute/show-gpus-all.txt``) and labels (``sky/utils/gpu_names.py``); of resources: the documentation of
the device plugins of NVIDIA, AMD, Gaudi, Neuron and Ascend, and "Accelerator Support" of Ray.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.job import Job
from forerun.search.formats.launchers import LAUNCH, PORT, SLURM, comment, harmless
from forerun.search.formats.templates import filled
from forerun.search.formats.yaml_text import dump_yaml
from forerun.search.request.prices import ACCELERATORS
from forerun.spaces.errors import RequestError

SKY, JOBSET, RAY = "sky.yaml", "jobset.yaml", "ray_job.py"
PLUGINS: Mapping[str, str] = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Intel": "habana.ai/gaudi",
    "AWS": "aws.amazon.com/neuron",
    "Huawei": "huawei.com/Ascend910",
}
"""Extended resources of Kubernetes by vendor: one resource of the vendor's device plugin is one catalogue device."""
RAY_RESOURCES: Mapping[str, str] = {
    "NVIDIA": "GPU",
    "AMD": "GPU",
    "Intel": "HPU",
    "Huawei": "NPU",
}
"""Resources of Ray by vendor; Neuron has none, since Ray counts the cores of a device (``neuron_cores``)."""
_SHARED_MEMORY = "64Gi"
"""Size of shared memory, since the default of containers is 64 MB."""


def placed(launch: Launch, files: Files) -> Files:
    """Return the files of a launch with the files of its platform.

    Raises
    ------
    RequestError
        The platform cannot run the launch; the text names the missing feature.
    """
    platform = launch.job.platform
    if platform == "slurm":
        return files
    if LAUNCH not in files:
        raise RequestError(f"--platform {platform}: this format writes no {LAUNCH} to start")
    write = _WRITERS[platform]
    kept = {name: text for name, text in files.items() if name != SLURM}
    return {**kept, **write(launch, kept)}


def _skypilot(launch: Launch, files: Files) -> Files:
    """Return a task of SkyPilot."""
    _only(launch.job, "skypilot", "container")
    accelerator = ACCELERATORS.get(launch.device)
    if accelerator is None:
        raise RequestError(f"--platform skypilot: SkyPilot has no accelerator for {launch.device or 'these devices'}")
    resources: dict[str, Any] = {"accelerators": f"{accelerator}:{launch.devices_used_per_node}"}
    if launch.nodes > 1:
        resources["network_tier"] = "best"
    if launch.job.container is not None:
        resources["image_id"] = f"docker:{_image(launch.job.container)}"
    task = {
        "name": _name(launch),
        "workdir": ".",
        "num_nodes": launch.nodes,
        "resources": resources,
        "run": 'export NODE_RANK="$SKYPILOT_NODE_RANK"\n'
        'export MASTER_ADDR="$(printf "%s\\n" "$SKYPILOT_NODE_IPS" | sed -n 1p)"\n'
        f"bash {LAUNCH}\n",
    }
    return {SKY: dump_yaml(task, f"{launch.name}: {launch.strategy}", f"sky launch {SKY}, from this folder")}


def _kubernetes(launch: Launch, files: Files) -> Files:
    """Return a JobSet, with the files of the launch in a ConfigMap; Kueue queues it if a queue is given."""
    _only(launch.job, "kubernetes", "container", "partition", "time")
    resource = PLUGINS.get(launch.vendor)
    if resource is None:
        raise RequestError(
            f"--platform kubernetes: no device plugin is known for devices of {launch.vendor or 'unknown make'}"
        )
    if launch.job.container is None:
        raise RequestError("--platform kubernetes: give --container, the image that the pods run")
    name = _name(launch)
    script = (
        "set -e\nmkdir -p /tmp/launch\ncp -L /launch/* /tmp/launch\n"
        f'export NODE_RANK="$JOB_COMPLETION_INDEX" MASTER_ADDR={name}-node-0-0.{name}\n'
        f"bash /tmp/launch/{LAUNCH}\n"
    )
    container = {
        "name": "train",
        "image": _image(launch.job.container),
        "command": ["bash", "-c", script],
        "resources": {"limits": {resource: launch.devices_used_per_node}},
        "volumeMounts": [{"name": "launch", "mountPath": "/launch"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "launch", "configMap": {"name": name}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY}},
        ],
    }
    job: dict[str, Any] = {
        "parallelism": launch.nodes,
        "completions": launch.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
    }
    if launch.job.time is not None:
        job["activeDeadlineSeconds"] = seconds_of(launch.job.time)
    node = {"name": "node", "replicas": 1, "template": {"spec": {**job, "template": {"spec": pod}}}}
    labels = {"kueue.x-k8s.io/queue-name": launch.job.partition} if launch.job.partition else {}
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(files)}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [node]},
    }
    remarks = (f"{launch.name}: {launch.strategy}", f"kubectl create -f {JOBSET}")
    return {JOBSET: dump_yaml(config, *remarks) + "---\n" + dump_yaml(jobset)}


def _ray(launch: Launch, files: Files) -> Files:
    """Return a job of Ray: a worker of TorchTrainer on every node, which starts ``launch.sh``."""
    _only(launch.job, "ray")
    resource = RAY_RESOURCES.get(launch.vendor)
    if resource is None:
        raise RequestError(f"--platform ray: {RAY} starts nothing on devices of {launch.vendor or 'unknown make'}")
    text = filled(
        "ray_job.py.txt",
        remark=comment(f"{launch.name}: {launch.strategy}"),
        file=RAY,
        launch=LAUNCH,
        port=PORT,
        nodes=launch.nodes,
        devices=launch.devices_used_per_node,
        resource=resource,
        gpu=resource == "GPU",
        files=tuple(files),
    )
    return {RAY: text}


_WRITERS: Mapping[str, Callable[[Launch, Files], Files]] = {
    "skypilot": _skypilot,
    "kubernetes": _kubernetes,
    "ray": _ray,
}


def _only(job: Job, platform: str, *options: str) -> None:
    """Refuse options that a platform lacks."""
    asked = [name for name in ("partition", "account", "time", "container") if getattr(job, name) is not None]
    for name in asked:
        if name not in options:
            raise RequestError(f"--platform {platform} has nothing that --{name} could set: leave it out")


def _name(launch: Launch) -> str:
    """Return a name valid as DNS label and in SkyPilot: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", harmless(launch.name).lower()).strip("-")[:40].strip("-") or "forerun"


def _image(container: str) -> str:
    """Return the registry name of an image; pyxis separates the registry by ``#``."""
    if container.startswith(("/", "./")):
        raise RequestError(f"--container {container} is a file, which only pyxis starts: name an image of a registry")
    return container.replace("#", "/")


def seconds_of(time: str) -> int:
    """Return a time limit in Slurm's format, in s.

    >>> seconds_of("90"), seconds_of("04:00:00"), seconds_of("1-12"), seconds_of("5:30")
    (5400, 14400, 129600, 330)
    """
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        units = (3600, 60, 1)[: len(parts)]
    else:
        units = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}[len(parts)]
    return 86400 * int(days or 0) + sum(part * unit for part, unit in zip(parts, units, strict=True))
