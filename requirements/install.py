"""Install packages into a virtual environment with uv, or with pip where uv has no wheel or fails.

    python requirements/install.py .venv --require-hashes --requirement requirements/dev.txt

uv takes a fifth of pip's time. It is installed beside this interpreter, as `uv.txt` pins it, and reads the indexes, the
folders of wheels, the proxy and the certificates that pip is configured with, unless its own variables name others.
"""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UV = [sys.executable, "-m", "uv", "pip", "install", "--quiet"]
PINNED = Path(__file__).with_name("uv.txt")
SETTINGS = {
    "cert": "SSL_CERT_FILE",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
}
"""Names of pip's settings, and the variables in which uv reads the same."""


def variables(listing: str) -> dict[str, str]:
    """Translate the output of `pip config list` into variables of uv."""
    settings: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):  # each overrules those before it
        for line in listing.splitlines():
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section) and name in SETTINGS:
                settings[name] = ast.literal_eval(value)
    if "find-links" in settings:
        settings["find-links"] = ",".join(settings["find-links"].split())
    # pip takes the best version of all indexes, uv by default the first index that has the package.
    return {SETTINGS[name]: " ".join(value.split()) for name, value in settings.items()} | {
        "UV_INDEX_STRATEGY": "unsafe-best-match"
    }


def has_uv() -> bool:
    """Install uv where it is missing, and say if it is there."""
    if importlib.util.find_spec("uv") is None:
        bootstrap = ["install", "--quiet", "--no-compile", "--only-binary", ":all:", "--require-hashes"]
        return subprocess.run([*PIP, *bootstrap, "--requirement", str(PINNED)]).returncode == 0
    return True


def main(environment: str, *arguments: str) -> int:
    """Install what the arguments of `pip install` name, and return an exit code."""
    target = str(Path(environment) / "bin" / "python")
    if has_uv():
        listing = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout
        if subprocess.run([*UV, "--python", target, *arguments], env=variables(listing) | os.environ).returncode == 0:
            return 0
    print("uv did not install the packages: pip installs them", file=sys.stderr)
    return subprocess.run([*PIP, "--python", target, "install", "--quiet", "--no-compile", *arguments]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
