"""The plan of a sweep: its product, its keys, and what is refused before anything runs."""

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import PLAN

from forerun.search.sweep import SweepPlan, read_plan
from forerun.search.sweep.plan import plan_of
from forerun.spaces.errors import RequestError


def test_a_plan_is_a_product_in_canonical_order(plan: SweepPlan) -> None:
    asked = [(p.request.model, p.request.precision, p.request.gpus, p.request.framework) for p in plan.pieces]

    assert asked[:3] == [
        ("llama3-8b", None, "8", "megatron-lm"),
        ("llama3-8b", None, "16", "megatron-lm"),
        ("llama3-8b", "fp8", "8", "megatron-lm"),
    ]
    assert len({piece.key for piece in plan.pieces}) == 8
    assert [piece.number for piece in plan.pieces] == list(range(8))


@pytest.mark.slow
def test_keys_are_the_same_in_every_process(tmp_path: Path, plan: SweepPlan) -> None:
    code = "import sys; from pathlib import Path; from forerun.search.sweep import read_plan; "
    code += "print(read_plan(Path(sys.argv[1])).digest)"
    command = [sys.executable, "-c", code, str(tmp_path / "plan.yaml")]
    digests = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert digests == {plan.digest}


def test_keys_name_the_content_of_files_and_not_their_names(tmp_path: Path) -> None:
    text = (resources.files("forerun.spaces.models") / "data" / "llama3-8b.yaml").read_text()
    assert "128256" in text
    fields: dict[str, Any] = {"workloads": [{"global_batch": 8, "seq_len": 128}], "budgets": [{"gpus": "8"}]}
    document = tmp_path / "ours.yaml"
    document.write_text(text)
    before = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)
    again = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)
    document.write_text(text.replace("128256", "32000"))
    after = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)

    assert before.digest == again.digest != after.digest


@pytest.mark.parametrize(
    "change,law",
    [
        (("llama3-8b,", "llama3-8,"), "did you mean llama3-8b"),
        (("dgx-h100", "dgx-h1000"), "did you mean dgx-h100"),
        (("budgets:", "budget:"), "budgets"),
        (("gpus: 16", "gpus: 8"), "search 2 of the plan is search 1 again"),
        (("mbs: 1", "msb: 1"), "did you mean mbs"),
        (("{gpus: 16}", "{}"), "a budget names gpus, usd_per_hour or both, but one is empty"),
        (("{gpus: 16}", "{train_within: 30d}"), "but one has only train_within"),
        (("{gpus: 16}", "{gpus: 16, train_within: 30 years}"), "a time"),
        (("top: 2", "seeds: [1, 2]"), "seeds and evaluations are for a sampler"),
        (("top: 2", "per_stage: [layer]"), "did you mean layers"),
        (("top: 2", "sampler: locl"), "did you mean local"),
        (("top: 2", "sampler: local\nobjective: throughput,gpus"), "a sampler looks for one objective"),
        (("top: 2", "sampler: local\nseeds: []"), "seeds must have at least one entry"),
        (("[llama3-8b, llama3-70b]", "[]"), "models must have at least one entry"),
        (("top: 2", "objective: fastest"), "unknown objective"),
        (("{gpus: 16}", "{gpus: 0}"), "at least 1 device, but got 0"),
        (("{gpus: 16}", "{gpus: 64..16}"), "use 16..64"),
        (("precision: fp8", "precision: fp9"), "unknown precision 'fp9'"),
        (("32, seq_len: 2048}, {", "0, seq_len: 2048}, {"), "global_batch must be at least 1"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(tmp_path: Path, change: tuple[str, str], law: str) -> None:
    path = tmp_path / "plan.yaml"
    assert change[0] in PLAN
    path.write_text(PLAN.replace(*change))

    with pytest.raises(RequestError, match=law):
        read_plan(path)
