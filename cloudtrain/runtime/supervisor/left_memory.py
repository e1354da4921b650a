"""Saves what the runtimes of a job that ends have left in the memory of this machine.

A runtime leaves it to the next attempt while the storage does not answer, or because it was killed. If no attempt
follows, another process commits it: the storage is that of the job's variables, and may not answer forever.

Usage: ``python -c PROGRAM LIBRARY FOLDER RUN_ID BASE SECONDS``. Prints a list for each sentence: whether it is good
news, and the sentence.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Callable

from cloudtrain.contract import Paths
from cloudtrain.contract.documents import parse_json
from cloudtrain.errors import CloudtrainError
from cloudtrain.runtime.checkpoint_memory import STALE_SECONDS, commit_left, remove_memory
from cloudtrain.runtime.run_folder import LIBRARY
from cloudtrain.storage import retry_policy

PROGRAM = (
    "import sys; del sys.path[0]; sys.path.append(sys.argv[1]);"
    " from cloudtrain.runtime.supervisor.left_memory import main; main(sys.argv[2:])"
)
LONGEST_SECONDS = 180.0
"""How long to try storage that answers slowly."""


def save_left_memory(
    paths: Paths,
    run_id: str,
    environ: Mapping[str, str],
    seconds: float,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Save what only the memory of a host on this machine has, and free it. Raises OSError.

    Args:
        paths: of the host.
        run_id: the identity of the job.
        environ: variables that reach the storage.
        seconds: how long to try storage that does not answer.
        say: is called with each sentence about what was saved.
        warn: the same for what could not be.
    """

    def save(folder: Path) -> bool:
        output, problem = _run([str(folder), run_id, str(paths.base), str(seconds)], environ)
        for is_good, sentence in _sentences(output):
            (say if is_good else warn)(sentence)
        if problem:
            warn(
                f"the last checkpoint is left in {folder}, in the memory of this machine: {problem}. A job that starts "
                f"here in {STALE_SECONDS / 3600:.0f} h or later removes it"
            )
        return not problem

    remove_memory(paths, save)


def _run(arguments: list[str], environ: Mapping[str, str]) -> tuple[bytes, str]:
    """Run `main` in a process. Returns its output, and why it has not saved all; empty if it has."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, LIBRARY, *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:  # such as no memory for another process
        return b"", str(error)
    try:
        output, errors = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired as late:
        process.kill()  # not waited for: it may hang in a dead mount
        return late.stdout or b"", f"the storage has not taken it in {LONGEST_SECONDS:.0f} s"
    if process.returncode == 0:
        return output, ""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return output, lines[-1] if lines else "it was killed"


def _sentences(output: bytes) -> Iterator[tuple[bool, str]]:
    """The lists that `main` has printed. A library, or a ``sitecustomize`` of the job, may print other lines."""
    for line in output.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            is_good, sentence = parse_json(line)
            if isinstance(is_good, bool) and isinstance(sentence, str):
                yield is_good, sentence


def main(arguments: list[str]) -> None:
    folder, run_id, base, seconds = arguments
    end = time.monotonic() + float(seconds)
    retry_policy.default.until = lambda: end
    retry_policy.default.warn = lambda _line: None
    try:
        for is_good, sentence in commit_left(Path(folder), run_id, Path(base)):
            sys.stdout.write(f"\n{json.dumps([is_good, sentence])}\n")
            sys.stdout.flush()
    except CloudtrainError as error:
        sys.exit(error.message)
