"""Runs a program that prints sections, each after a line ``=== NAME``, in TensorFlow's environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

MARK = "=== "


def printed_sections(
    python: str, program: Path, *arguments: str, env: Mapping[str, str], cwd: Path | None = None
) -> dict[str, tuple[str, ...]]:
    """The lines of each section by its name. Raises CalledProcessError and TimeoutExpired."""
    done = subprocess.run(
        [python, str(program), *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **env},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=240,
    )
    sections = done.stdout.split(MARK)[1:]
    return {section.split("\n", 1)[0]: tuple(section.splitlines()[1:]) for section in sections}
