"""A clock for every Python of a job, its supervisor included, that a file sets."""

from __future__ import annotations

from pathlib import Path

_SITECUSTOMIZE = """
import time

_time = time.time


def _stepped():
    try:
        with open({file!r}) as file:
            return _time() + float(file.read())
    except (OSError, ValueError):
        return _time()


time.time = _stepped
"""


def write_clock(folder: Path, file: Path) -> None:
    """Write a module into ``folder``, for PYTHONPATH. ``file`` has the seconds by which the clock is wrong, if any."""
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(file=str(file)))
