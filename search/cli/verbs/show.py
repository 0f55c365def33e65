"""``forerun show``: one entry of the catalogue."""

import argparse

from forerun.search.cli.arguments import add_json
from forerun.search.cli.parser import Parser

EPILOG = """\
examples:
  forerun show llama3-70b
  forerun show dgx-h100 --json
  forerun show my-cluster.yaml"""


def add_arguments(parser: Parser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("name", metavar="NAME", help="a model, cluster, device or framework, or the file of one")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Find and print."""
    from forerun.search.catalogue import describe
    from forerun.search.leaderboard import SCHEMA, dump_json

    kind, facts = describe(args.name)
    if args.json:
        print(dump_json({"schema": SCHEMA, "kind": kind, **facts}))
        return 0
    import yaml

    # Floats print as people write them: 8e+10 is how YAML spells 80 billion bytes.
    print(f"# {kind}")
    print(yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=100).rstrip())
    return 0
