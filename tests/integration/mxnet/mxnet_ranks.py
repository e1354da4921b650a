"""Runs commands as ranks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import cloudtrain

MPIRUN = "/usr/bin/mpirun"
LIBMPI = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
"""Debian's Open MPI 4."""
OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl_tcp_if_include", "lo"]


def run(command: Sequence[str], count: int, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``command`` until it ends, with stderr in stdout. One rank runs as a plain process."""
    return subprocess.run(
        command if count == 1 else [find_mpirun(), *OPTIONS, "-n", str(count), *command],
        env=environment(),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )


def environment() -> dict[str, str]:
    """This process's environment, with which a Python of another environment finds this cloudtrain and Debian's MPI."""
    package = Path(cloudtrain.__file__).parent
    return {
        **os.environ,
        "PATH": os.pathsep.join([os.path.dirname(MPIRUN), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(package / "alias")]),
        "MPI4PY_LIBMPI": LIBMPI,
        "OMP_NUM_THREADS": "1",
    }


def find_mpirun() -> str:
    """Skip the test without mpirun, unless skipping is forbidden."""
    if not os.path.exists(MPIRUN):
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"there is no {MPIRUN}"
        pytest.skip(f"there is no {MPIRUN}")
    return MPIRUN
