"""``forerun doctor``: installed versions, optional parts, Ray and accelerators of this machine."""

import argparse
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

REQUIRED = ("numpy", "pydantic", "pyyaml", "rich")
"""Packages without which nothing runs."""
OPTIONAL = {
    "scipy": "calibrate, validate: pip install scipy",
    "networkx": "replay, operator graphs: pip install networkx",
    "optuna": "search --storage, tune: pip install optuna",
    "ray": '--workers ray: pip install "forerun[ray]"',
    "torch": 'profile, graphs: pip install "forerun[profile]"',
    "onnx": 'graphs: pip install "forerun[graphs]"',
    "pandas": "to_pandas(): pip install pandas",
    "huggingface-hub": 'models by name of the hub: pip install "forerun[hub]"',
    "mcp": 'forerun mcp: pip install "forerun[mcp]"',
}
"""Optional packages with purpose and installation."""
TOOLS = (("nvidia-smi", "-L"), ("rocm-smi", "--showproductname"), ("hl-smi", "-L"), ("npu-smi", "info"))
SECONDS = 10
CURRENT_RAY = Path("/tmp/ray/ray_current_cluster")
"""Ray's file with the address of the cluster of this machine."""


def run(args: argparse.Namespace) -> int:
    """Print the report; return 2 if a required package is missing."""
    from forerun.search.files.documents import SCHEMA, dump_json
    from forerun.search.files.release import VERSION
    from forerun.spaces.errors import RequestError

    required = {name: _version(name) for name in REQUIRED}
    document = {
        "schema": SCHEMA,
        "forerun": VERSION,
        "python": platform.python_version(),
        "required": required,
        "optional": {name: {"version": _version(name), "needed_for": need} for name, need in OPTIONAL.items()},
        "ray": ray_cluster(),
        "accelerators": accelerators(),
    }
    print(dump_json(document) if args.json else "\n".join(_lines(document)))
    return 0 if all(required.values()) else RequestError.exit_code


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def ray_cluster() -> dict[str, Any]:
    """Return the address of the Ray cluster that a command would use, and whether it answers."""
    address = os.environ.get("RAY_ADDRESS") or (CURRENT_RAY.read_text().strip() if CURRENT_RAY.is_file() else "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return {"address": None, "answers": False}
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return {"address": address, "answers": True}
    except (OSError, OverflowError):
        return {"address": address, "answers": False}


def accelerators() -> list[str]:
    """Return the accelerators listed by vendors' tools, one line each."""
    for tool, flag in TOOLS:
        if path := shutil.which(tool):
            try:
                done = subprocess.run([path, flag], capture_output=True, text=True, timeout=SECONDS, check=False)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0 and done.stdout.strip():
                return done.stdout.strip().splitlines()
    return []


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [f"forerun {document['forerun']}, Python {document['python']}"]
    lines += [
        f"  {name} {version or 'MISSING: run `pip install ' + name + '`'}"
        for name, version in document["required"].items()
    ]
    lines.append("optional parts:")
    for name, part in document["optional"].items():
        lines.append(
            f"  {name} {part['version']}" if part["version"] else f"  {name} not installed ({part['needed_for']})"
        )
    ray = document["ray"]
    answers = "answers" if ray["answers"] else "does not answer"
    lines.append("Ray cluster: " + (f"{ray['address']} {answers}" if ray["address"] else "none on this machine"))
    lines.append("accelerators: " + ("" if document["accelerators"] else "none found"))
    return lines + [f"  {line}" for line in document["accelerators"]]
