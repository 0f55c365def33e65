"""Lists of the catalogue: the committed lines of models are those of the models, and printing them builds none."""

import subprocess
import sys

from forerun.search.catalogue.lists import LISTS, lines_of_models


def test_lines_of_models_are_those_of_the_models() -> None:
    mend = "python -m forerun.search.catalogue.lists > search/catalogue/data/models.json"
    assert LISTS["models"]() == lines_of_models(), f"a model has changed: run {mend}"


def test_a_list_of_models_builds_no_model() -> None:
    code = (
        "import sys; from forerun.search.cli import main; code = main(['list', 'models', '--json']); "
        "heavy = {'numpy', 'pydantic', 'yaml', 'importlib.metadata', 'forerun.spaces.models', 'forerun.simulator'}; "
        "found = heavy & set(sys.modules); "
        "sys.exit(f'{code} {found}' if code or found else 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert '"llama3-8b"' in run.stdout
