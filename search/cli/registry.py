"""The verbs of the command line.

A verb is a module with ``EPILOG`` (an example), ``FLAGS`` and ``run(args) -> exit code``; ``REST`` names the words
after ``--``, where it takes any. It is imported only when it is called, and imports what it needs inside ``run``, so
that ``--help`` answers at once. A new verb is one file and one line here.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb: its name, the module that does it, what it does in one line, and what a terminal shows while it works
    (empty: it shows that itself, or another program does)."""

    name: str
    module: str
    summary: str
    doing: str


def _verb(name: str, summary: str, doing: str = "") -> Verb:
    return Verb(name=name, module=f"forerun.search.cli.verbs.{name}", summary=summary, doing=doing)


VERBS: tuple[Verb, ...] = (
    _verb("search", "rank every legal way to split a training over a cluster", "searching"),
    _verb("sweep", "many searches as one job that can be killed and resumed"),
    _verb("simulate", "predict step time and memory of one strategy", "simulating"),
    _verb(
        "scale",
        "data-parallel throughput over the number of workers: all-reduce, parameter servers, stragglers",
        "simulating",
    ),
    _verb("explain", "one strategy in depth, and the changes that would help or hurt", "explaining"),
    _verb("limits", "scaling limits of each kind of split, and what would raise them", "searching"),
    _verb("tune", "short measured runs of the best rows on your own cluster"),
    _verb("rollout", "reinforcement learning: which GPUs train and which generate", "searching"),
    _verb("compare", "two strategies side by side", "comparing"),
    _verb("export", "launch files of a row of the leaderboard, for a training framework", "writing"),
    _verb("import", "a configuration of a training framework as a strategy", "reading"),
    _verb("report", "a finished search as one HTML page that works offline", "writing the page"),
    _verb("record", "run a training and keep traces of some of its steps"),
    _verb("replay", "analyse traces of a real run: waits, stragglers, link rates", "reading"),
    _verb(
        "improve",
        "gradient buckets, fusions and other changes that shorten a step, with their gain",
        "looking for improvements",
    ),
    _verb("job", "commands of a YAML document, one after the other"),
    _verb("validate", "accuracy and order of predictions against measured runs", "predicting"),
    _verb("profile", "measure operators and collectives on this machine", "getting ready"),
    _verb("calibrate", "fit the constants of a machine to measured runs", "calibrating"),
    _verb("list", "names of the catalogue: models, clusters, devices, frameworks"),
    _verb("show", "one entry of the catalogue, with its source"),
    _verb("mcp", "tools for an agent over the Model Context Protocol: search, simulate, explain, export"),
    _verb("doctor", "versions, optional parts, Ray and accelerators of this machine", "looking"),
    _verb("completion", "completion script for bash, zsh or fish, or the man page"),
)
