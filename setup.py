"""List the packages for the build; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent

setup(
    packages=[
        "forerun",
        *(
            ".".join(("forerun", *path.parent.relative_to(ROOT).parts))
            for folder in ("search", "simulator", "spaces")
            for path in sorted((ROOT / folder).rglob("__init__.py"))
        ),
    ]
)
