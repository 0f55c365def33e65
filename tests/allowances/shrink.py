"""Violations of the rules for docstrings and complexity that are allowed until somebody mends them.

``lint.toml`` names the ruff rules that a file may break, ``docstrings.json`` the number of docstrings of a file with a
banned beginning. Files are known by their name alone, so that they may move. ``make allowances`` writes both again when
violations went, and refuses to allow more.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINT, DOCSTRINGS = Path(__file__).with_name("lint.toml"), Path(__file__).with_name("docstrings.json")
PACKAGES = ("public", "search", "simulator", "spaces")
RULES = "C901,PLR0913,D"
BEGINNINGS = re.compile(
    r"(?:Returns?|Yields?|Says?|Tells?) (?:what|how|which|where|when|by how)\b|(?:What|How|Which)\b"
)
HEAD = """# Written by `make allowances`: rules that files of these names may break. Entries only go.
# violations: {total}
[lint.per-file-ignores]
"""


def broken_rules() -> tuple[dict[str, list[str]], int]:
    """Return the rules that files of each name break, and the number of violations."""
    command = [sys.executable, "-m", "ruff", "check", str(ROOT), "--select", RULES, "--ignore", "D105,D107"]
    ignores = ["--output-format", "json", "--config", "lint.per-file-ignores={}"]
    done = subprocess.run([*command, *ignores], capture_output=True, text=True, check=False, cwd=ROOT)
    violations = json.loads(done.stdout)
    rules = defaultdict(set)
    for one in violations:
        rules[Path(one["filename"]).name].add(one["code"])
    return {name: sorted(rules[name]) for name in sorted(rules)}, len(violations)


def poor_docstrings() -> dict[str, int]:
    """Return the number of docstrings with a banned beginning in files of each name."""
    counts: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            counts[path.name] += sum(map(is_poor, docstrings(path.read_text(encoding="utf-8"))))
    return {name: count for name, count in sorted(counts.items()) if count}


def docstrings(text: str) -> list[str]:
    """Return the docstrings of the functions and classes of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


def is_poor(docstring: str) -> bool:
    """Whether a docstring begins with a relative clause in place of a noun."""
    return BEGINNINGS.match(docstring) is not None


def allowed_rules() -> tuple[dict[str, list[str]], int]:
    """Return what ``lint.toml`` allows: rules by name of a file, and violations in all."""
    text = LINT.read_text(encoding="utf-8")
    (total,) = re.findall(r"^# violations: (\d+)$", text, re.MULTILINE)
    rules: dict[str, list[str]] = tomllib.loads(text)["lint"]["per-file-ignores"]
    return rules, int(total)


def allowed_docstrings() -> dict[str, int]:
    """Return what ``docstrings.json`` allows."""
    counts: dict[str, int] = json.loads(DOCSTRINGS.read_text(encoding="utf-8"))
    return counts


def write(rules: Mapping[str, list[str]], total: int, counts: Mapping[str, int]) -> None:
    """Write both lists."""
    lines = [f"{json.dumps(name)} = {json.dumps(codes)}\n" for name, codes in rules.items()]
    LINT.write_text(HEAD.format(total=total) + "".join(lines), encoding="utf-8")
    DOCSTRINGS.write_text(json.dumps(counts, indent=0) + "\n", encoding="utf-8")


def main() -> None:
    """Write the lists if they allow no more than before."""
    rules, total = broken_rules()
    counts = poor_docstrings()
    if LINT.exists() and total > (before := allowed_rules()[1]):
        sys.exit(f"{total} violations of {RULES}, but {before} are allowed; run `ruff check --select {RULES}`")
    if DOCSTRINGS.exists() and sum(counts.values()) > sum(allowed_docstrings().values()):
        sys.exit("more docstrings begin with 'Return what', 'What' or the like than before; write a verb and a noun")
    write(rules, total, counts)


if __name__ == "__main__":
    main()
