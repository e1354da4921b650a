"""The models of this machine's GPUs."""

from __future__ import annotations

import contextlib
import subprocess

MOST = 1024
SECONDS = 20.0
"""How long the driver may take, as it wakes all GPUs first."""


def gpu_models() -> list[str]:
    """The name of each NVIDIA GPU of this machine, such as ``NVIDIA H100 80GB HBM3``; none without a driver."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=True
        )
        return done.stdout.decode("utf-8", "replace").splitlines()[:MOST]
    return []
