"""Runs programs, and commands of cloudtrain, on systems that are played here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SYSTEMS = Path(__file__).parent


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run_on(
    system: str, program: Path, *arguments: str, cwd: Path, environ: Mapping[str, str] | None = None
) -> str:
    """The output of a Python program. On macOS (``darwin``), its Python child processes run there as well."""
    prefix = [str(SYSTEMS / "as_windows.py")] if system == "win32" else []
    path = {} if prefix else {"PYTHONPATH": str(SYSTEMS / "macos")}
    done = subprocess.run(
        [sys.executable, *prefix, str(program), *arguments],
        cwd=cwd,
        env={**os.environ, **(environ or {}), **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands_on(
    system: str, *commands: list[str], cwd: Path, environ: Mapping[str, str] | None = None
) -> list[Ended]:
    """How each command of cloudtrain ends."""
    printed = run_on(system, SYSTEMS / "commands.py", json.dumps(commands), cwd=cwd, environ=environ)
    return [Ended(*ended) for ended in json.loads(printed.splitlines()[-1])]
