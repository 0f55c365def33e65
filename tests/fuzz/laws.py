"""Laws between answers of the public interface, for random requests of every kind.

    python -m tests.fuzz.laws [--cases 1000] [--seed 0] [--minutes M]

A case is a random request: a transformer or a network of operators and a cluster of the catalogue, devices, batch,
sequence, framework, precision; calibrated or not; groups of nodes; gradient profiles. All ways to ask for it must agree
(``ways.py``; in other words on the command line, ``restated.py``), and a better machine must not be worse
(``better.py``; ``docs/laws.md`` says by how much it may be).
"""

import argparse
import math
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from forerun.search.answer.diagnosis.no_answer import NoAnswer
from forerun.search.answer.searches import search_request
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.clusters import cluster_names
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.frameworks.switches import all_switches, available
from forerun.spaces.models import model_names
from forerun.spaces.opgraph import graph_model_names
from tests.fuzz import better, restated, ways
from tests.fuzz.results import measured

KINDS = {"transformer": 30, "restated": 40, "network": 15, "calibrated": 6, "curve": 8, "groups": 1}
"""Kinds of requests, and how many of a hundred cases are of each."""
SMALL = ("llama3-8b", "qwen3-0.6b", "mixtral-8x7b", "gemma-2-9b", "qwen3-30b-a3b", "llama2-7b")
"""Models that most cases have: they fit on few devices."""


def random_request(random: Random) -> Request:
    """Return a request of a transformer; many ask for something that no machine or framework has."""
    known = [name for name in SMALL if name in model_names()]
    model = random.choice(known if random.random() < 0.6 else model_names())
    framework = random.choice(framework_names())
    return Request(
        model=model,
        cluster=random.choice(cluster_names()),
        framework=framework,
        switches=switched(framework, random) if random.random() < 0.25 else {},
        moe_imbalance=random.choice((None, None, None, 1.2)),
        documents=random.choice((None, None, None, None, "300")),
        lora=random.choice((None, None, None, None, None, "16")),
        gpus=str(random.choice((1, 2, 4, 8, 8, 16, 16, 24, 32, 64))),
        global_batch=random.choice((8, 16, 32, 48, 64, 96, 128, 256)),
        seq_len=random.choice((128, 512, 1000, 1024, 2048, 4096)),
        precision=random.choice((None, None, "bf16", "fp16", "fp8", "tf32")),
        objective=random.choice(("throughput", "throughput", "cost", "headroom")),
        usd_per_gpu_hour=random.choice((None, 2.0)),
        top=random.choice((1, 5, 20)),
    )


def switched(framework: str, random: Random) -> dict[str, str]:
    """Return one or two switches of a framework's software, each with another setting than its default."""
    held = available(load_framework(framework))
    others = {name: [word for word in all_switches()[name].values if word != held[name]] for name in held}
    names = [name for name, words in others.items() if words]
    return {name: random.choice(others[name]) for name in random.sample(names, min(len(names), random.choice((1, 2))))}


def network_request(random: Random) -> Request:
    """Return a request of a network of operators."""
    return Request(
        model=random.choice(graph_model_names()),
        cluster=random.choice(cluster_names()),
        gpus=str(random.choice((1, 2, 4, 8, 16))),
        global_batch=random.choice((8, 32, 64, 256)),
        precision=random.choice((None, "fp32", "tf32", "fp16")),
        top=random.choice((1, 5, 20)),
    )


def calibrated_request(random: Random, folder: Path) -> Request:
    """Return a request on the machine of the corpus's calibration."""
    return Request(
        model=random.choice(("llama3-8b", "llama2-7b")),
        cluster="dgx-a100-80",
        gpus=str(random.choice((8, 16, 32))),
        global_batch=random.choice((16, 32, 64)),
        seq_len=random.choice((512, 2048)),
        framework="megatron-lm",
        calibration=str(folder / "calibration.yaml"),
        top=random.choice((1, 5)),
    )


def broken(request: Request, random: Random, folder: Path) -> list[str] | None:
    """Return the laws that the answers to a request break; None where it has no answer."""
    try:
        setting = resolve(request)
        board = search_request(setting)
    except (RequestError, NoAnswer):
        return None

    def told() -> Iterator[str]:
        yield from ways.alone(setting, board, random)
        yield from ways.written(setting, board, random)
        yield from ways.exported(setting, board, random)
        if random.random() < 0.5:
            yield from ways.sliced(setting, board, random)
        if request.calibration is None:
            yield from better.worse_on_better(setting, board, random)
            yield from better.spared(setting, random)
        if random.random() < 0.04:
            yield from ways.elsewhere(setting, board, random)
        chance = random.random()
        if chance < 0.15:
            yield from ways.commanded(setting, board, random, folder)
        elif chance < 0.23 and request.calibration is None:
            yield from better.units(request, board, folder)
        elif chance < 0.26 and request.seq_len is not None and request.calibration is None:
            yield from ways.as_tree(setting, board, random, folder)

    found = []
    try:
        for law in told():
            found.append(law)
    except Exception:
        found.append(traceback.format_exc()[-1500:])
    asked = " ".join(ways.asked(request))
    return [f"{law}  [{asked}]" for law in found]


def tried(kind: str, random: Random, folder: Path) -> list[str] | None:
    """Return what one case of a kind breaks; None where it has no answer."""
    if kind == "curve":
        return better.curves(random, folder)
    if kind == "restated":
        return restated.broken(restated.random_request(random), restated.LAWS, random, folder)
    if kind == "groups":
        return restated.broken(restated.on_groups(random, folder), restated.ON_GROUPS, random, folder)
    if kind == "network":
        return broken(network_request(random), random, folder)
    if kind == "calibrated":
        return broken(calibrated_request(random, folder), random, folder)
    return broken(random_request(random), random, folder)


def run(*, cases: int, seed: int, minutes: float = 0.0) -> tuple[Counter[str], list[str]]:
    """Try random requests until ``cases`` had an answer; returns how many of each kind had, and what broke."""
    end_s = time.monotonic() + 60 * minutes if minutes else math.inf
    answered, found, number = Counter[str](), list[str](), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured(folder)
        while answered.total() < cases and time.monotonic() < end_s:
            random = Random(f"{seed}.{number}")
            number += 1
            kind = random.choices(list(KINDS), list(KINDS.values()))[0]
            laws = tried(kind, random, folder)
            answered[kind] += laws is not None
            found += laws or ()
            for law in laws or ():
                print(law, flush=True)
    return answered, found


def main() -> None:
    """Compare and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    args = parser.parse_args()
    answered, found = run(cases=args.cases, seed=args.seed, minutes=args.minutes)
    kinds = ", ".join(f"{kind} {count}" for kind, count in answered.most_common())
    print(f"{answered.total()} requests had an answer ({kinds}), {len(found)} broken laws")


if __name__ == "__main__":
    main()
