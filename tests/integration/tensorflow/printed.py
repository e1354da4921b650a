"""Runs a program that prints sections, each after a line ``=== NAME``, in TensorFlow's environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import warm_python

MARK = "=== "


def printed_sections(
    python: str, program: Path, *arguments: str, env: Mapping[str, str], cwd: Path | None = None
) -> dict[str, tuple[str, ...]]:
    """The lines of each section by its name. Raises TimeoutExpired."""
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **env}
    with tempfile.TemporaryFile("w+") as output:
        interpreter = warm_python.tensorflow(python, variables)
        started = warm_python.start([str(program), *arguments], variables, output, output, cwd, interpreter)
        try:
            code = started.wait(240)
        finally:
            started.kill()
        output.seek(0)
        printed = output.read()
    assert code == 0, printed
    sections = printed.split(MARK)[1:]
    return {section.split("\n", 1)[0]: tuple(section.splitlines()[1:]) for section in sections}
