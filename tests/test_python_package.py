"""``import forerun``: light, typed, and the same answers as the command line."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import forerun
from forerun.jobs import SearchJob

JOB: forerun.TrainingJob = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": "4k", "gpus": 16}
FIRST, SECOND = "tp2 pp1 dp8 mbs1 zero1 sp recompute=full", "tp4 pp2 dp2 mbs1 zero1 sp recompute=full"


@pytest.fixture(scope="module")
def found() -> forerun.SearchResult:
    return forerun.search("llama3-8b", top=3, overrides={"mbs": [1], "vpp": [1]}, **JOB)


def test_the_import_brings_in_nothing_heavy() -> None:
    program = (
        "import sys, forerun; forerun.__version__; heavy = {'numpy', 'rich', 'pydantic', 'ray', 'optuna', 'yaml'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_name_is_there() -> None:
    assert all(getattr(forerun, name) is not None for name in forerun.__all__)
    assert set(forerun.__all__) <= set(dir(forerun))
    with pytest.raises(AttributeError, match="has no attribute 'serch'"):
        _ = forerun.serch  # type: ignore[attr-defined]


def test_keywords_are_the_fields_of_a_request() -> None:
    fields = {field.name for field in dataclasses.fields(forerun.Request)}

    assert SearchJob.__required_keys__ | SearchJob.__optional_keys__ == fields - {"model", "user_defaults"}


def test_words_are_read_as_on_the_command_line() -> None:
    tokens = forerun.simulate("llama3-8b", strategy=FIRST, cluster="dgx-h100", global_batch="256k tokens", seq_len="4k")
    sequences = forerun.simulate("llama3-8b", strategy=FIRST, **JOB)

    assert tokens == sequences


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clster": "dgx-h100"}, "unknown keyword 'clster'; did you mean cluster"),
        ({"cluster": "dgx-h100"}, "the keyword global_batch is missing"),
        ({**JOB, "seq_len": "4q"}, "like 8k"),
    ],
)
def test_wrong_keywords_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(forerun.errors.RequestError, match=message):
        forerun.simulate("llama3-8b", strategy=FIRST, **fields)  # type: ignore[arg-type]  # what is tested


def test_a_result_is_a_table_a_picture_and_files(found: forerun.SearchResult, tmp_path: Path) -> None:
    assert [row.rank for row in found.rows] == [1, 2, 3] and len(found.to_pandas()) == 3
    assert found.plot(rows=2).html.count("<code>") == 2
    found.plot().save(tmp_path / "plot.html")
    assert "compute" in (tmp_path / "plot.html").read_text()
    assert "<table>" in found._repr_html_()
    files = found.export("slurm", rank=2, out=tmp_path / "launch")
    assert {path.name for path in (tmp_path / "launch").iterdir()} == set(files) and "slurm.sbatch" in files
    with pytest.raises(forerun.errors.RequestError, match="unknown format"):
        found.export("slrum")
    with pytest.raises(forerun.errors.RequestError, match="ranks 1 to 3"):
        found.export(rank=4)


def test_results_are_printed_in_a_line_a_row(found: forerun.SearchResult) -> None:
    simulated = forerun.simulate("llama3-8b", strategy=FIRST, **JOB)

    title, *rows = str(found).splitlines()
    assert "llama3-8b on 16 GPUs of dgx-h100" in title
    assert [row.name in line for row, line in zip(found.rows, rows, strict=True)] == [True] * 3
    assert FIRST in repr(simulated) and len(repr(simulated).splitlines()) == 1


def test_a_simulated_strategy_is_exported(tmp_path: Path) -> None:
    simulated = forerun.simulate("llama3-8b", strategy=FIRST, **{**JOB, "framework": "megatron-lm"})

    files = simulated.export(out=tmp_path / "launch")

    assert {path.name for path in (tmp_path / "launch").iterdir()} == {"launch.sh", "slurm.sbatch"}
    assert "--tensor-model-parallel-size 2" in files["launch.sh"]
    assert simulated.export("megatron-lm").keys() == files.keys()
    with pytest.raises(forerun.errors.RequestError, match="unknown format"):
        simulated.export("slrum")
    with pytest.raises(forerun.errors.RequestError, match="nearest: data8"):
        forerun.simulate("resnet50", strategy="data4 filter2", cluster="dgx-h100", global_batch=512).export()


def test_two_strategies_are_compared() -> None:
    compared = forerun.compare("llama3-8b", first=FIRST, second=SECOND, **JOB)

    assert compared.first == forerun.simulate("llama3-8b", strategy=FIRST, **JOB) != compared.second
    assert "B is " in compared.text and compared.text in compared._repr_html_().replace("&#x27;", "'")
    assert len(compared.to_pandas()) == 2
    drawn = compared.plot().html
    assert FIRST in drawn and SECOND in drawn and drawn.count("compute") >= 2
    assert "memory" in compared.first.plot().html


def test_what_does_not_fit_says_so() -> None:
    with pytest.raises(forerun.errors.NothingFeasible) as caught:
        forerun.search("llama3-405b", cluster="dgx-h100", global_batch=64, seq_len=4096, gpus=8)

    assert isinstance(caught.value, forerun.errors.ForerunError) and caught.value.exit_code == 3


@pytest.mark.slow  # reads the whole package
def test_mypy_finds_a_misspelt_keyword(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    script = tmp_path / "user.py"
    script.write_text('import forerun\nforerun.search("llama3-8b", cluster="x", global_batch=1, seq_length=8)\n')
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(root / ".mypy_cache"), "--ignore-missing-imports"]
    done = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, cwd=tmp_path, env={"MYPYPATH": str(root / ".typing")}
    )

    assert 'keyword argument "seq_length" for "search"; did you mean "seq_len"?' in done.stdout
