"""The notebook runs from top to bottom."""

import json
import os
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}

    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)

    assert len(cells) == 12
    assert not any(cell.get("outputs") for cell in cells)  # what a reader sees is what he ran
    assert len(names["outcomes"]) >= 1 and "slurm.sbatch" in names["files"]  # type: ignore[arg-type, operator]
    assert os.listdir(tmp_path) == []
