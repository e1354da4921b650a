"""``cloudtrain run`` as a process, with the interpreter of the tests first on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOCAL = ["-np", "2", "-H", "localhost:2"]


def start(
    folder: Path, *arguments: str, environ: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("cloudtrain")), "run", *arguments]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[3]), **(environ or {})},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    folder: Path, *arguments: str, environ: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    with start(folder, *arguments, environ=environ, stdin=stdin) as process:
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def of_rank(output: str, rank: int) -> list[str]:
    prefix = f"[rank {rank}] "
    return [line[len(prefix) :] for line in output.splitlines() if line.startswith(prefix)]
