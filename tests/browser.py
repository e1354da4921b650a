"""A real browser: Chromium of this machine, driven by playwright in environments that are made once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PLAYWRIGHT = ("playwright",)
ENVIRONMENTS = Path.home() / ".cache" / "cloudtrain-bench"


def find_chromium() -> str | None:
    """The path of Chromium or Chrome."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def programs_with(packages: Sequence[str] = PLAYWRIGHT, name: str = "browser") -> Path:
    """The folder of the programs of an environment that has the packages, made once under this name."""
    environment, wanted = ENVIRONMENTS / name, "\n".join(packages)
    mark = environment / "packages.txt"
    if not mark.is_file() or mark.read_text() != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", *packages], check=True)
        mark.write_text(wanted)
    return environment / "bin"
