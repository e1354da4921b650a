"""Errors of a file system: system calls of real processes fail, for the paths that a test names (strace(1))."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def _inject(error: str, paths: Iterable[Path], which: str) -> list[str]:
    chosen = [word for path in paths for word in ("-P", str(path))]
    return ["strace", "-f", "-qq", *chosen, "-e", f"inject=%file,%desc:error={error}:when={which}"]


@contextlib.contextmanager
def failing(processes: Iterable[int], paths: Iterable[Path], error: str) -> Iterator[None]:
    """Every call of ``processes`` about one of ``paths`` fails with ``error`` during the block."""
    attach = [word for process in processes for word in ("-p", str(process))]
    command = [*_inject(error, paths, "1+"), *attach, "-o", "|cat"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as tracer:
        assert tracer.stdout
        try:
            while b"INJECTED" not in tracer.stdout.readline():
                assert tracer.poll() is None
            yield
        finally:
            tracer.terminate()
            tracer.stdout.read()


def run_failing(
    arguments: Sequence[str], paths: Iterable[Path], error: str, which: str = "1+"
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m cloudtrain`` with ``arguments``. The calls numbered by ``which`` (strace(1)) fail."""
    command = [
        *_inject(error, paths, which),
        "-o",
        "/dev/null",
        sys.executable,
        "-m",
        "cloudtrain",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)
