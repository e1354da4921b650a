"""Runs commands on a bare Debian, by scripts/bare_debian."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "bare_debian"
CACHE = Path("~/.cache/cloudtrain-bench/bare-debian-packages").expanduser()
"""The downloads of apt and pip. No run starts with them installed."""


def run_on_bare_debian(*arguments: str, timeout: float) -> str:
    """Run a command with options of scripts/bare_debian; the output. Fails the test unless it succeeds."""
    if os.getuid() != 0:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "a bare Debian needs root"
        pytest.skip("a bare Debian needs root")
    done = subprocess.run(
        [SCRIPT, "--cache", CACHE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
