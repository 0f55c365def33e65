"""Small random requests through the command line: each is asked again in other words that mean the same.

Spaces are restricted to a few choices of each axis, so that a request takes tenths of a second and many are asked.
"""

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from forerun.search.cli import main
from forerun.search.formats.registry import ENTRIES
from forerun.spaces.clusters import cluster_names
from forerun.spaces.frameworks import framework_names
from forerun.spaces.models import model_names
from tests.fuzz.sample import ROOT

MODELS = ("llama3-8b", "qwen3-0.6b", "mixtral-8x7b", "gemma-2-9b", "bert-large", "nemotron-h-8b", "t5-large")
"""Models that most requests have."""
POWERS = (1, 2, 4, 8)
GROUPS = ("dgx-h100", "dgx-a100-80", "dgx-a100-40", "a100-pcie", "hgx-h200", "dgx1-v100", "l40s-pcie", "hgx-h20")
FLAGS: Mapping[str, tuple[str, ...]] = {
    "--precision": ("bf16", "fp16", "fp8", "tf32", "fp32"),
    "--moe-imbalance": ("1.2", "2"),
    "--lora": ("16", "8:attention"),
    "--freeze": ("embedding", "head"),
    "--documents": ("300", "77"),
    "--optimizer": ("muon", "sgd"),
    "--usd-per-gpu-hour": ("2", "0.37"),
    "--tokens": ("1T", "3e9"),
}
"""Flags of every verb that trains, with values."""
OF_SEARCHES: Mapping[str, tuple[str, ...]] = {
    "--objective": ("cost", "headroom", "gpus"),
    "--goodput": ("failures=1e-3,recovery=5min",),
}


class Refused(Exception):
    """A request is wrong, or nothing fits."""


def answer(*words: str) -> Any:
    """Return the document of a command.

    Raises
    ------
    Refused
        Exit code 2 or 3.
    AssertionError
        Any other exit code but 0.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, "--json", "--debug"])
    if code in (2, 3):
        raise Refused(err.getvalue()[-300:])
    assert code == 0, f"exit {code}: {' '.join(words)}: {err.getvalue()[-1500:]}"
    return json.loads(out.getvalue()) if out.getvalue().strip() else None


def figures(rows: list[Any]) -> list[Any]:
    """Return what has to agree of some rows."""
    return [[row[name] for name in ("strategy", "step_time_s", "peak_memory_gib", "gpus")] for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: ``flags`` of every verb, ``search`` of searches alone, and choices by axis."""

    model: str
    flags: Mapping[str, str]
    gpus: int | None
    axes: Mapping[str, list[int]]
    search: Mapping[str, str] = field(default_factory=dict)

    def words(self, **changes: str) -> list[str]:
        """Return the words that every verb takes; ``changes``: of flags, by their names without dashes."""
        flags = {**self.flags, **{"--" + name.replace("_", "-"): value for name, value in changes.items()}}
        return [self.model, *(word for pair in flags.items() for word in pair)]

    def rows(self, top: int, *more: str, gpus: str = "", axes: Mapping[str, Any] = {}, **changes: str) -> list[Any]:
        """Return the rows of the search."""
        return list(self.board(top, *more, gpus=gpus, axes=axes, **changes)["leaderboard"])

    def board(self, top: int, *more: str, gpus: str = "", axes: Mapping[str, Any] = {}, **changes: str) -> Any:
        """Return the document of the search."""
        count = [] if self.gpus is None else ["--gpus", gpus or str(self.gpus)]
        choices = {**self.axes, **axes}
        sets = [word for axis, own in choices.items() for word in ("--set", f"{axis}={','.join(map(str, own))}")]
        own = [word for pair in self.search.items() for word in pair]
        return answer("search", *self.words(**changes), *count, *sets, *own, "--top", str(top), *more)


def random_request(random: Random) -> Asked:
    """Return a request of a transformer; many ask for something that no machine or framework has."""
    gpus = random.choice((1, 2, 4, 8, 8, 16, 32))
    degrees = [power for power in POWERS if power <= gpus]
    axes = {axis: sorted(random.sample(degrees, min(2, len(degrees)))) for axis in ("tp", "pp")}
    axes |= {"mbs": sorted(random.sample((1, 2, 3, 4, 8), 2)), "cp": random.choice(([1], [1, 2]))}
    flags = {
        "--cluster": random.choice(cluster_names()),
        "--global-batch": str(random.choice((8, 16, 48, 64, 96, 256))),
        "--seq-len": str(random.choice((128, 512, 1000, 1024, 4096))),
    }
    if random.random() < 0.8:
        flags["--framework"] = random.choice(framework_names())
    flags |= {name: random.choice(values) for name, values in FLAGS.items() if random.random() < 0.12}
    search = {name: random.choice(values) for name, values in OF_SEARCHES.items() if random.random() < 0.15}
    model = random.choice(MODELS if random.random() < 0.6 else model_names())
    return Asked(model=model, flags=flags, gpus=gpus, axes=axes, search=search)


def on_groups(random: Random, folder: Path) -> Asked:
    """Return a request on two or three groups of nodes."""
    path = folder / "groups.yaml"
    names = random.choices(GROUPS, k=random.choice((2, 2, 3)))
    groups = [{"cluster": name, "devices": random.choice((4, 8, 8))} for name in names]
    path.write_text(yaml.safe_dump({"groups": groups}))
    flags = {"--cluster": str(path), "--global-batch": random.choice(("8", "16", "24")), "--seq-len": "1024"}
    axes = {"cp": [1], "mbs": [random.choice((1, 2, 4))], "tp": random.choice(([1, 2], [2, 4], [1, 8]))}
    return Asked(model=random.choice(("qwen3-0.6b", "qwen3-1.7b", "gpt2")), flags=flags, gpus=None, axes=axes)


def fewer_rows(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield where fewer rows do not begin like more."""
    more, top = figures(asked.rows(31)), random.choice((1, 2, 6, 10, 11, 20, 21))
    if figures(asked.rows(top)) != more[:top]:
        yield f"--top {top} does not begin like --top 31"


def other_verbs(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield what other verbs say of a row."""
    row = random.choice(rows)
    strategy = ["--strategy", row["strategy"]]
    said = {"simulate": answer("simulate", *asked.words(), *strategy)}
    if asked.gpus is not None:
        said["explain"] = answer("explain", *asked.words(), *strategy)["row"]
        said["compare"] = answer("compare", *asked.words(), *strategy, "--strategy", rows[0]["strategy"])["rows"][0]
        said["--baseline"] = asked.board(1, "--baseline", row["strategy"])["baseline"]["row"]
    for verb, other in said.items():
        if figures([other]) != figures([row]):
            yield f"{verb} says {figures([other])}, search {figures([row])}"


def several_precisions(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield what a list of precisions finds that its searches do not."""
    precisions, found = random.sample(FLAGS["--precision"], 2), []
    for precision in precisions:
        with contextlib.suppress(Refused):
            found += [figures([row])[0] for row in asked.rows(5, precision=precision)]
    joint = figures(asked.rows(5, precision=",".join(precisions)))
    if any(row not in found for row in joint):
        yield f"--precision {','.join(precisions)} has rows that neither has"


def numbers_of_gpus(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield where the best of a range of GPUs is not that of its own number."""
    assert asked.gpus is not None
    (best,) = asked.rows(1, gpus=f"{asked.gpus}..{2 * asked.gpus}")
    if figures(asked.rows(1, gpus=str(best["gpus"]))) != figures([best]):
        yield f"--gpus {asked.gpus}..{2 * asked.gpus} has another best than --gpus {best['gpus']}"


def restricted(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield where a restriction that row one keeps changes row one."""
    axis = random.choice(("tp", "pp", "mbs"))
    choice = next(word[len(axis) :] for word in rows[0]["strategy"].split() if word.startswith(axis))
    if figures(asked.rows(1, axes={axis: [choice]})) != figures(rows[:1]):
        yield f"--set {axis}={choice} changes row one"


def in_tokens(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield what a batch of as many tokens changes."""
    tokens = int(asked.flags["--global-batch"]) * int(asked.flags["--seq-len"])
    if figures(asked.rows(5, global_batch=f"{tokens} tokens")) != figures(rows[:5]):
        yield f"--global-batch '{tokens} tokens' changes the rows"


def own_document(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield what a cluster of the catalogue costs otherwise as a document of the user's, with a device ``like`` it."""
    data = ROOT / "spaces" / "clusters" / "data"
    cluster = yaml.safe_load((data / "clusters" / f"{asked.flags['--cluster']}.yaml").read_text())
    device = cluster["device"]
    if random.random() < 0.5:
        own = yaml.safe_load((data / "devices" / f"{device}.yaml").read_text())
        cluster["device"] = {"name": f"{device}-own", "like": device, **own}
    path = folder / "own-cluster.yaml"
    path.write_text(yaml.safe_dump(cluster))
    if figures(asked.rows(3, cluster=str(path))) != figures(rows[:3]):
        yield f"{asked.flags['--cluster']} as a document of its own has other rows"


def in_a_sweep(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield what a sweep of the one search finds else."""
    flags = {name.lstrip("-").replace("-", "_"): value for name, value in {**asked.flags, **asked.search}.items()}
    if {"lora", "freeze", "documents", "optimizer"} & set(flags):
        return  # a plan has none of them
    plan = {
        "models": [asked.model],
        "clusters": [flags["cluster"]],
        "workloads": [
            {"global_batch": int(flags["global_batch"]), "seq_len": int(flags["seq_len"])}
            | {name: flags[name] for name in ("precision", "tokens") if name in flags}
            | ({"moe_imbalance": float(flags["moe_imbalance"])} if "moe_imbalance" in flags else {})
        ],
        "budgets": [
            {"gpus": asked.gpus}
            | ({"usd_per_gpu_hour": float(flags["usd_per_gpu_hour"])} if "usd_per_gpu_hour" in flags else {})
            | ({"goodput": flags["goodput"]} if "goodput" in flags else {})
        ],
        "axes": dict(asked.axes),
        "top": 5,
    }
    plan |= {"frameworks": [flags["framework"]]} if "framework" in flags else {}
    plan |= {"objective": flags["objective"]} if "objective" in flags else {}
    path, out = folder / "plan.yaml", folder / "sweep"
    path.write_text(yaml.safe_dump(plan))
    shutil.rmtree(out, ignore_errors=True)
    answer("sweep", str(path), "--out", str(out), "--workers", "serial")
    (record,) = (json.loads(line) for line in (out / "pieces.jsonl").read_text().splitlines())
    if figures(record.get("rows", [])) != figures(rows[:5]):
        yield f"a sweep finds other rows ({record['status']})"


def read_back(asked: Asked, rows: list[Any], random: Random, folder: Path) -> Iterator[str]:
    """Yield where a launch in a format of the row's own framework is read back as another run."""
    run, launch, rank = folder / "run", folder / "launch", random.randrange(1, len(rows) + 1)
    row = asked.rows(len(rows), "--out", str(run), "--force")[rank - 1]
    framework = asked.flags.get("--framework", "megatron-lm")
    formats = [entry.name for entry in ENTRIES if framework in entry.frameworks]
    for name in random.sample(formats, min(1, len(formats))):
        shutil.rmtree(launch, ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = main(["export", str(run), "--rank", str(rank), "--format", name, "--out", str(launch)])
        if code == 0:
            again = asked.board(1, "--baseline", str(launch))["baseline"]
            # Files of Megatron-Bridge are written for Megatron-LM, too, and predicted as NeMo's.
            if again["framework"] == framework and figures([again["row"]]) != figures([row]):
                yield f"{name}: {figures([row])} is read back as {figures([again['row']])}"


Law = Callable[[Asked, list[Any], Random, Path], Iterator[str]]
LAWS: tuple[Law, ...] = (
    fewer_rows,
    other_verbs,
    several_precisions,
    numbers_of_gpus,
    restricted,
    in_tokens,
    own_document,
    in_a_sweep,
    read_back,
)
ON_GROUPS: tuple[Law, ...] = (fewer_rows, other_verbs)


def broken(asked: Asked, laws: tuple[Law, ...], random: Random, folder: Path) -> list[str] | None:
    """Return what a request breaks of two laws; None where it has no answer."""
    found = list[str]()
    try:
        rows = asked.rows(10)
        for law in random.sample(laws, 2):
            with contextlib.suppress(Refused):  # one of its questions makes no sense
                found += [f"{law.__name__}: {text}  [{asked}]" for text in law(asked, rows, random, folder)]
    except Refused:
        return None
    except (AssertionError, json.JSONDecodeError) as error:
        found.append(f"{error}  [{asked}]")
    return found
