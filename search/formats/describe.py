"""The page ``docs/launchers.md``: keys of every launcher with a table."""

from forerun.search.formats.keys import Launcher, LaunchKey, decisions
from forerun.search.formats.registry import tables

HEAD = """\
# Keys of launch files

Keys that `forerun import` reads for each launcher, from the tables in `search/formats/`. Several names of a key are
its spellings, newest first. Degrees of several keys multiply; for other decisions the first stated key counts.
Megatron-Bridge, NeMo, Megatron-LM's logs, ms-swift's `megatron`, MindSpeed, slime, Primus and Pai-Megatron-Patch have
the keys of Megatron-LM, some under other names. `python -m forerun.search.formats.describe` prints this page.
"""


def page() -> str:
    """Return the page: a table of keys for each launcher."""
    return HEAD + "".join(_section(launcher) for launcher in tables())


def _section(launcher: Launcher) -> str:
    rows = "".join(_row(key) for key in launcher.keys)
    title = f"\n## {launcher.title} ({launcher.name} {launcher.version})\n"
    return f"{title}\n| key | decides | meaning | unit or words |\n|---|---|---|---|\n{rows}"


def _row(key: LaunchKey) -> str:
    names = ", ".join(f"`{name}`" for name in key.names)
    flag = "true" in (key.words or ())
    left_out = {"", "*", "0", "1"} if flag else {"", "*"}
    words = ", ".join(f"`{word}`" for word in key.words or () if word not in left_out)
    return f"| {names} | {decisions()[key.decides].title} | {key.description} | {key.counts or words} |\n"


if __name__ == "__main__":
    print(page(), end="")
