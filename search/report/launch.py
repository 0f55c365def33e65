"""How the rows of a leaderboard are started: the launch files of the best, as the page shows them."""

from collections.abc import Sequence

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.figures.markup import Safe, joined, tag
from forerun.search.formats.launch_of import launch_of
from forerun.search.report.request_of import Behind
from forerun.search.request.setting import of_transformer
from forerun.spaces.errors import ForerunError

MOST = 10
"""Rows whose launch files are part of the page."""


def launch_texts(board: Leaderboard, behind: Behind) -> list[str]:
    """Return the launch files of the best rows as text, empty for one that no format has words for; none where the
    request is not at hand any more."""
    if behind.setting is None or board.rows[0].facts is not None:
        return []
    context, texts = of_transformer(behind.setting).context, []
    for row in board.rows[:MOST]:
        try:
            name, files = launch_of(
                context.in_precision(row.precision), row.strategy, name=f"{context.model.name} rank {row.rank}"
            )
        except ForerunError:
            texts.append("")
            continue
        texts.append("\n".join(f"# {name}: {file}\n{text}" for file, text in files.items()))
    return texts


def launch_details(board: Leaderboard, texts: Sequence[str]) -> Safe | None:
    """Return the commands that start the winner, and its launch file, folded; None where there is none."""
    if not texts or not texts[0]:
        return None
    files = {line.removeprefix("# ") for line in texts[0].splitlines() if line.startswith("# ")}
    form = texts[0].splitlines()[0].removeprefix("# ").split(":")[0]
    lines = [f"forerun export RUN --rank {board.rows[0].rank} --format {form} --out launch"]
    starts = {"slurm.sbatch": "sbatch launch/slurm.sbatch", "launch.sh": "bash launch/launch.sh"}
    lines += [start for file, start in starts.items() if f"{form}: {file}" in files][:1]
    told = "RUN is a folder of `forerun search ... --out RUN`; the whole command is the last of this page."
    return joined(
        [
            tag("pre", "\n".join(lines), class_="launch"),
            tag("details", tag("summary", "Launch files"), joined([tag("p", told), tag("pre", texts[0])]), id="launch"),
        ]
    )
