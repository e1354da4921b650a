"""Environments with trackers of others, each made once: their dependencies do not fit into that of the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path.home() / ".cache" / "cloudtrain-bench"


def programs_of(*packages: str) -> Path:
    """The folder of the programs in an environment with these packages."""
    folder = CACHE / "-".join(("tracker", *(re.sub(r"\W.*", "", name) for name in packages)))
    mark = folder / "packages.txt"
    if not mark.is_file() or mark.read_text() != "\n".join(packages):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", *packages], check=True)
        mark.write_text("\n".join(packages))
    return folder / "bin"
