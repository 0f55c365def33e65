"""Jobs that are disturbed: how each is begun, gone on with, and what it must leave behind."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.results import measured
from tests.fuzz.sample import REQUEST, SEARCH, quiet

SWEEP = """\
models: [llama3-8b, qwen3-0.6b]
clusters: [dgx-h100, dgx-a100-80]
workloads: [{global_batch: 64, seq_len: 2048}, {global_batch: 128, seq_len: 512}]
budgets: [{gpus: 16}]
top: 3
"""
_TIMED = ("elapsed_s", "candidates_per_s", "workers", "created", "seconds")
"""Keys of results that say how a search went, not what it found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command of forerun: ``words`` may name ``{folder}``; ``left`` returns what it left in its folder, the same
    whenever and however often it was killed. ``whole``: what it wrote must also be there whole or not at all after
    every kill (``old``: what may be there before)."""

    name: str
    words: tuple[str, ...]
    left: Callable[[Path], dict[str, bytes]]
    whole: bool = False
    prepare: Callable[[Path], None] = lambda folder: None


def _untimed(data: object) -> object:
    if isinstance(data, dict):
        return {key: _untimed(value) for key, value in data.items() if key not in _TIMED}
    return [_untimed(value) for value in data] if isinstance(data, list) else data


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, without what says how long something took."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.exists() else []:
        if path.is_file() and path.suffix in (".json", ".csv", ".yaml", ".sh", ".toml", ".py", ".sbatch"):
            data = path.read_bytes()
            if path.suffix == ".json":
                data = json.dumps(_untimed(json.loads(data)), sort_keys=True).encode()
            if path.name not in ("versions.json", "pieces.csv"):
                found[str(path.relative_to(folder))] = data
    return found


def jobs(folder: Path) -> list[Job]:
    """Return the jobs; ``folder`` takes what they read."""
    folder.mkdir(parents=True, exist_ok=True)
    measured(folder)
    plan, run = folder / "plan.yaml", folder / "run"
    plan.write_text(SWEEP)
    quiet(f"{SEARCH} --out {run}")
    calibration = (folder / "calibration.yaml").read_text()
    more = (folder / "runs.csv").read_text().replace("lab-", "more-").replace(",3,40,", ",3.1,41,")
    (folder / "more.csv").write_text(more)
    nccl = folder / "all_reduce_perf.txt"
    nccl.write_text(
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n# Collective test starting: all_reduce_perf\n"
        + "".join(f"#  Rank  {rank} Group  0 Pid  1 on  host0 device  {rank} [0x1b] H100\n" for rank in range(8))
        + "".join(f"  {size}  {size // 4}  float  sum  -1  {20 + size / 1e4:.2f} 1.0 1.5 0 {size / 1e3:.2f} 1.0 1.5 0\n"
                  for size in (1024, 1048576, 134217728))
    )  # fmt: skip

    def out(at: Path) -> dict[str, bytes]:
        own = str(at).encode()  # batch scripts name the folder that they are in
        return {name: data.replace(own, b"{folder}") for name, data in contents(at / "out").items()}

    def one(at: Path) -> dict[str, bytes]:
        path = at / "out.yaml"
        return {"out.yaml": path.read_bytes()} if path.exists() else {}

    def calibrated(at: Path) -> None:
        (at / "out.yaml").write_text(calibration)

    profile = f"profile llama3-8b {REQUEST} --only collectives --nccl-tests {nccl} --out {{folder}}/out.yaml --force"
    again = f"calibrate {folder / 'more.csv'} --append --out {{folder}}/out.yaml --force"
    return [
        Job(name="sweep", words=_words(f"sweep {plan} --out {{folder}}/out --workers serial --resume"), left=out),
        Job(
            name="search",
            words=_words(
                f"search llama3-8b {REQUEST} --gpus 8..64 --framework generic --workers serial --force"
                " --out {folder}/out"
            ),
            left=out,
            whole=True,
        ),
        Job(name="calibrate --append", words=_words(again), left=one, whole=True, prepare=calibrated),
        Job(name="profile", words=_words(profile), left=one, whole=True),
        Job(name="export", words=_words(f"export {run} --format all --out {{folder}}/out --force"), left=out),
    ]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())
