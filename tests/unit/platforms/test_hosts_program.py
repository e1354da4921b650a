"""The program that a host receives: its modules import nothing of cloudtrain that is not sent with them."""

from __future__ import annotations

import subprocess
import sys

from cloudtrain.platforms.hosts.connection import _program


def test_a_host_without_cloudtrain_starts_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _program().decode()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        timeout=240,
    )
    assert "ModuleNotFoundError" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
