"""Imports run downwards: search -> simulator -> spaces, and inside each package among its files and its folders.

Imports for type checking count as well, and so do those inside functions: they tie two files together for whoever reads
them. What a package's ``__init__.py`` hands on is an import of the file that defines it.
"""

import subprocess
import sys
from pathlib import Path

import networkx
import pytest
from import_graph import PACKAGES, ImportGraph, circles
from sources import source

ROOT = Path(__file__).parents[1]
GRAPH = ImportGraph(root=ROOT)
HEAVY = ("ray", "optuna", "torch", "networkx", "pandas", "scipy")

NOT_OF_A_SEARCH = tuple(
    f"forerun.{room}"
    for room in (
        "search.answer.diagnosis.diagnosis search.answer.explain.explain search.answer.trees search.explore.groups "
        "search.explore.planned search.explore.samplers search.explore.staged search.explore.trees "
        "search.formats.table search.opgraph simulator.assignment simulator.calibration simulator.events "
        "simulator.layouts simulator.opgraph spaces.operators spaces.trees spaces.opgraph.graphs"
    ).split()
)
"""Rooms that a search of a transformer has no use for: a user would wait until they are imported."""

KNOWN: set[tuple[str, str]] = set()
"""Arrows of circles that are still there. Strict: one that is gone must leave this list, and none may join it."""

SIMULATOR = (
    "score_table.py costs/ layouts/ layer/ pipeline/ stages/ replicas/ memory/ core/ assignment/ events/ "
    "opgraph/ scoring.py modes/ replay/ improve/ calibration/ goodput/ __init__.py"
).split()
"""Folders of the simulator, lowest first: the order in which a reader meets what each of them needs."""


def test_folders_of_the_simulator_import_those_below_them() -> None:
    (graph,) = (graph for graph in GRAPH.folders() if "simulator/score_table.py" in graph)
    place = {f"simulator/{name}": number for number, name in enumerate(SIMULATOR)}
    upwards = [f"{one} -> {other}" for one, other in graph.edges if place[one] < place[other]]

    assert {(path.parent.name, path.name.rstrip("/")) for path in (ROOT / "simulator").iterdir()} >= {
        ("simulator", name.rstrip("/")) for name in SIMULATOR
    }
    assert not upwards, "\n".join(upwards)


MOST_ARROWS = 90
"""Arrows among the rooms of ``search/`` (its folders, and files at its top). This number may shrink, never grow."""


def test_rooms_of_search_know_few_others() -> None:
    (graph,) = (graph for graph in GRAPH.folders() if "search/api.py" in graph)

    assert len(graph.edges) <= MOST_ARROWS, "\n".join(f"{one} -> {other}" for one, other in sorted(graph.edges))


def test_a_search_finds_rows_and_only_answers_are_leaderboards() -> None:
    explore = [path for path in GRAPH.files.values() if GRAPH.name(path).startswith("search/explore/")]
    boards = [GRAPH.name(path) for path in explore for item in source(path).imports if item.name == "Leaderboard"]

    assert explore
    assert not boards, "returns or takes a leaderboard; return a Found: " + ", ".join(boards)


def test_no_import_is_relative_or_upwards() -> None:
    wrong = []
    for path in GRAPH.files.values():
        name = GRAPH.name(path)
        below = PACKAGES[: PACKAGES.index(name.split("/")[0]) + 1]
        for item in source(path).imports:
            whole = f"{item.module}.{item.name}" if item.name else item.module
            first, *rest = whole.split(".")
            if item.level:
                wrong.append(f"{name}: relative import of {whole}")
            elif first in PACKAGES:
                wrong.append(f"{name}: {whole} names a folder; import forerun.{whole}")
            elif first == "forerun" and rest[0] not in below:
                wrong.append(f"{name}: imports {whole}, which is above it")

    assert {GRAPH.name(path).split("/")[0] for path in GRAPH.files.values()} == set(PACKAGES)
    assert not wrong, "\n".join(wrong)


def test_no_circle_among_files_or_folders() -> None:
    found = {arrow: [arrow] for arrow in circles(GRAPH.arrows)}
    for graph in GRAPH.folders():
        found |= {arrow: graph.edges[arrow]["files"] for arrow in circles(graph)}

    thin_first = sorted(found.keys() - KNOWN, key=lambda arrow: (len(found[arrow]), arrow))
    new = [
        f"{one} -> {other}" + "".join(f"\n    {' -> '.join(files)}" for files in found[one, other][:3])
        for one, other in thin_first
    ]
    gone = [f"{one} -> {other}" for one, other in sorted(KNOWN - found.keys())]
    assert not new, "imports on a circle; move what ties it to the lower of the two:\n" + "\n".join(new)
    assert not gone, "no longer on a circle; remove from KNOWN:\n" + "\n".join(gone)


def test_a_circle_is_found_through_types_functions_and_packages_that_hand_on(tmp_path: Path) -> None:
    sources = {
        "spaces/__init__.py": "",
        "spaces/low/__init__.py": "from forerun.spaces.low.value import Value",
        "spaces/low/value.py": "def use():\n    from forerun.spaces.high.top import Top\nclass Value: pass",
        "spaces/high/__init__.py": "",
        "spaces/high/top.py": "if TYPE_CHECKING:\n    from forerun.spaces.low import Value\nclass Top: pass",
        "spaces/high/side.py": "from forerun.spaces.high.top import Top",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = ImportGraph(root=tmp_path)

    files = {("spaces/low/value.py", "spaces/high/top.py"), ("spaces/high/top.py", "spaces/low/value.py")}
    assert circles(graph.arrows) == files
    (among_folders,) = (circles(folder) for folder in graph.folders() if circles(folder))
    assert among_folders == {("spaces/low/", "spaces/high/"), ("spaces/high/", "spaces/low/")}


def test_folders_may_be_on_a_circle_where_no_file_is(tmp_path: Path) -> None:
    sources = {"one/a.py": "import forerun.spaces.two.b", "two/b.py": "", "two/c.py": "import forerun.spaces.one.d"}
    for name, text in (sources | {"one/d.py": ""}).items():
        (tmp_path / "spaces" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spaces" / name).write_text(text)
    graph = ImportGraph(root=tmp_path)

    assert networkx.is_directed_acyclic_graph(graph.arrows)
    assert any(circles(folder) for folder in graph.folders())


@pytest.mark.parametrize(
    "module", ["forerun.spaces", "forerun.spaces.models", "forerun.simulator", "forerun.search.cli"]
)
def test_importing_it_brings_in_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert "forerun" in loaded
    assert not set(HEAVY) & set(loaded)


def test_a_search_imports_only_what_it_needs() -> None:
    asked = "search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192 --set tp=8 --json"
    script = f"import sys; from forerun.search.cli import main; main({asked.split()}); print(*sys.modules)"
    *_, loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    names = loaded.split()

    assert "forerun.search.formats.megatron_lm" in names
    assert [name for name in names if name.startswith(NOT_OF_A_SEARCH)] == []


def test_spaces_alone_brings_in_no_other_package() -> None:
    script = "import sys, forerun.spaces; print(*(name for name in sys.modules if name.startswith('forerun.')))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {name.split(".")[1] for name in loaded} == {"spaces"}
