"""requirements/*.txt pin everything that `make demo`, `make test` and `make docs` install, as pyproject.toml asks."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = PROJECT["dependency-groups"]
RUNTIME = [*PROJECT["project"]["dependencies"], *GROUPS["backend"]]
ASKED = {"runtime": RUNTIME, "dev": [*RUNTIME, *GROUPS["dev"], *GROUPS["docs"]], "uv": GROUPS["lock"]}


def pins(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of every package of a lock."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
    pinned = {}
    for entry in filter(str.strip, entries):
        asked = Requirement(entry.split("\\")[0])
        (bound,) = asked.specifier
        assert bound.operator == "==", entry
        pinned[canonicalize_name(asked.name)] = (bound.version, entry.count("--hash=sha256:"))
    return pinned


@pytest.mark.parametrize("name", ASKED)
def test_the_lock_has_what_is_asked_for(name: str) -> None:
    pinned = pins(name)
    for text in ASKED[name]:
        asked = Requirement(text)
        version, _ = pinned[canonicalize_name(asked.name)]
        assert asked.specifier.contains(version, prereleases=True), f"{text}: {version} is locked; run `make lock`"


@pytest.mark.parametrize("name", ASKED)
def test_every_locked_package_has_hashes(name: str) -> None:
    assert all(hashes for _, hashes in pins(name).values())


def test_both_locks_agree() -> None:
    assert pins("runtime").items() <= pins("dev").items()


def test_the_build_backend_is_the_locked_one() -> None:
    assert PROJECT["build-system"]["requires"] == GROUPS["backend"]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["demo", "test", "docs", "slow"])
def test_make_installs_nothing_but_the_lock(target: str, tmp_path: Path) -> None:
    command = ["make", "--dry-run", target, f"VENV={tmp_path}/venv"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    installs = [line for line in lines if "requirements/install.py" in line or ("pip" in line and " install " in line)]
    assert installs
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs), installs
    assert all("--no-isolation" in line for line in lines if " -m build " in line)


@pytest.fixture
def installer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements" / "install.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_uv_reads_what_pip_is_configured_with(installer: ModuleType) -> None:
    listing = (
        "global.index-url='https://mirror/simple'\n"
        "global.find-links='/wheels /more'\n"
        "global.timeout='60'\n"
        ":env:.extra-index-url='\\nhttps://one\\nhttps://two'\n"
        "install.index-url='https://nearer/simple'\n"
    )

    assert installer.variables(listing) == {
        "UV_DEFAULT_INDEX": "https://nearer/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX": "https://one https://two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


@pytest.mark.parametrize(("uv_exits", "by"), [(0, ["uv"]), (2, ["uv", "pip"])])
def test_pip_installs_what_uv_cannot(uv_exits: int, by: list[str], tmp_path: Path, installer: ModuleType) -> None:
    log = tmp_path / "log"
    record = f"import sys; 'install' in sys.argv and print(sys.argv[1], file=open({str(log)!r}, 'a'))"
    record += "; sys.exit(int(sys.argv[2]))"
    installer.UV = [sys.executable, "-c", record, "uv", str(uv_exits), "install"]
    installer.PIP = [sys.executable, "-c", record, "pip", "0"]
    installer.has_uv = lambda: True

    assert installer.main(str(tmp_path), "--no-deps", "package") == 0
    assert log.read_text().split() == by
