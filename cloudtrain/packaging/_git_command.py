"""Runs git, without any program that a repository's configuration names."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

LIMIT = 5.0
"""Seconds that all git commands may take together. If they take longer, the state is left out."""

_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


def tracked_files(folder: str) -> list[str]:
    """The files below ``folder`` that git tracks, relative to it; none without git."""
    try:
        listed = run_git(Path(folder), time.monotonic() + LIMIT, "ls-files", "-z", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.rstrip("\0").split("\0")


def run_git(folder: Path, deadline: float, *arguments: str) -> str:
    # Run no helper that the repository's configuration names, and write nothing to the repository. Inside a git
    # hook, the environment may name another repository: ignore it.
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    done = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments],
        cwd=folder,
        env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=max(0.0, deadline - time.monotonic()),
        check=True,
    )
    return done.stdout.decode("utf-8", "surrogateescape")
