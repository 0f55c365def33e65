"""``forerun show``: one entry of the catalogue."""

import argparse
from collections.abc import Iterator
from typing import Any

from forerun.search.catalogue.facts import describe
from forerun.search.files.documents import SCHEMA, dump_json


def run(args: argparse.Namespace) -> int:
    """Find and print."""
    kind, facts = describe(args.name)
    if args.json:
        print(dump_json({"schema": SCHEMA, "kind": kind, **facts}))
        return 0
    import yaml

    from forerun.search.files.row_yaml import PlainDumper

    for layer in facts.get("layers", ()):
        layer.pop("attention", None)  # the mixer by its name in JSON
    if "operators" in facts:  # one line each: a network has hundreds
        facts["operators"] = [" ".join(_words(operator)) for operator in facts["operators"]]
    if kind == "cluster":
        from forerun.search.catalogue.facts import cluster_file

        print(cluster_file(args.name), end="")
        return 0
    # Plain notation of floats, instead of YAML's 8e+10 for 80 billion bytes.
    print(f"# {kind}")
    print(yaml.dump(facts, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=100).rstrip())
    return 0


def _words(operator: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an operator, with numbers in full."""
    yield f"{operator['name']} ({operator['kind']}) {operator['input']} to {operator['output']}"
    if "kernel" in operator:
        yield f"kernel {operator['kernel']} stride {operator['stride']}"
    for fact, unit in (("parameters", "parameters"), ("macs", "MACs")):
        if operator[fact]:
            yield f"{operator[fact]} {unit}"
