"""``python -m forerun.search`` runs the command line."""

import sys

from forerun.search.cli import main

if __name__ == "__main__":
    sys.exit(main())
