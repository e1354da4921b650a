"""Commits the checkpoints in the memory of a host in another process, which is abandoned if the storage hangs.

A process that waits for a dead mount cannot be ended, not even by SIGKILL, and a waiting thread keeps its process from
ending.

Usage: ``python -c PROGRAM LIBRARY REQUEST``, with the `Request` as JSON. Prints a list for each result: whether it is a
success, and a sentence about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from cloudtrain._system.processes import stat_fields
from cloudtrain._system.signals import ENDING, blocked
from cloudtrain.checkpoint.memory.commit import commit_newest
from cloudtrain.checkpoint.memory.files import read_headers
from cloudtrain.checkpoint.store.attempts import Attempt
from cloudtrain.contract.documents import parse_json
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.errors import CloudtrainError, Unreachable
from cloudtrain.runtime.run_folder import LIBRARY
from cloudtrain.storage import open_store, retry_policy
from cloudtrain.storage.base import Store

PROGRAM = (
    "import sys; del sys.path[0]; sys.path.append(sys.argv[1]);"
    " from cloudtrain.runtime.commit_process import main; main(sys.argv[2])"
)
SILENT_SECONDS = 20.0
"""A process that has used no CPU and done no I/O for this time counts as hung."""
SLOW = 50e6
"""Written bytes for which that time grows by a second: a mount of object storage may upload them all in one call."""
LOOK_SECONDS = 0.02
LONGEST_LOOK = 0.5
"""The most seconds of silence that count between two looks, because both processes may have been paused together."""
ON_DISK = "file://"


class Request(NamedTuple):
    """The arguments of `commit_newest`, and how to reach the storage."""

    folder: str
    attempt: Attempt | None
    where: str
    is_complete: bool = False
    base: str = ""
    """The folder of the host, which its ranks may access as ``/opt/ml``."""
    elsewhere: str = ""
    """A folder for checkpoints that cannot be stored; if empty, they stay in memory."""
    given_up: str = ""
    """Why the storage is no longer tried; empty if it is."""
    seconds: float = 0.0
    """How long to try unavailable storage."""


def uris_in(folder: Path) -> list[str]:
    """The URIs of the copies in a memory folder."""
    return sorted({header.uri for _, header in read_headers(folder)})


def may_hang(folder: Path) -> bool:
    """Whether a commit of the copies in this memory folder may wait for a mount."""
    return any(uri.startswith(ON_DISK) for uri in uris_in(folder))


def commit_in_process(
    request: Request, environ: Mapping[str, str], say: Callable[[bool, str], None], longest: float
) -> str:
    """Run `main` in another process.

    Args:
        environ: the variables for access to the storage.
        say: called with what `commit_newest` yields.
        longest: the seconds after which the process is abandoned in any case.

    Returns why a checkpoint was not saved; empty if all were. Raises Unreachable if the process is abandoned.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            code = _run(request, environ, longest, output, errors)
        except Unreachable:
            raise
        except OSError as error:  # such as no memory for another process
            return str(error)
        finally:
            for is_good, sentence in _sentences(_content(output)):
                say(is_good, sentence)
        lines = _content(errors).decode("utf-8", "replace").strip().splitlines()
        return "" if code == 0 else lines[-1] if lines else "it was killed"


def _run(
    request: Request, environ: Mapping[str, str], longest: float, output: IO[bytes], errors: IO[bytes]
) -> int:
    """Run the process, and return its exit code. Raises OSError if it cannot start."""
    command = [sys.executable, "-c", PROGRAM, LIBRARY, json.dumps(request)]
    with blocked(ENDING):  # a scheduler sends these signals to all processes, but the runtime decides
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
    began = seen = time.monotonic()
    silent, work = 0.0, None
    while (code := process.poll()) is None:
        time.sleep(LOOK_SECONDS)
        now, (done, written) = time.monotonic(), _work(process.pid)
        silent = silent + min(now - seen, LONGEST_LOOK) if done == work else 0.0
        seen, work = now, done
        is_late = now > began + longest
        if is_late or silent > SILENT_SECONDS + written / SLOW:
            process.kill()  # without a wait, because it may hang in a dead mount
            where = ", ".join(uris_in(Path(request.folder)))
            raise Unreachable(
                f"{where} {f'has not taken it in {longest:.0f} s' if is_late else 'does not answer'}"
            )
    return code


def _work(process: int) -> tuple[object, int]:
    """A value that changes when a process computes, reads or writes, and the bytes that it has written."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        done = Path(f"/proc/{process}/io").read_bytes()
        return (stat_fields(process)[11:13], done), int(done.split()[3])  # rchar: N, wchar: N
    return time.monotonic(), 0  # unknown without /proc


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _sentences(output: bytes) -> Iterator[tuple[bool, str]]:
    """The lists that `main` has printed. A library, or a ``sitecustomize`` of the job, may print other lines."""
    for line in output.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            is_good, sentence = parse_json(line)
            if isinstance(is_good, bool) and isinstance(sentence, str):
                yield is_good, sentence


def main(text: str) -> None:
    request = Request(*json.loads(text))
    end = time.monotonic() + request.seconds
    retry_policy.default.until = lambda: end
    retry_policy.default.warn = lambda _line: None
    here = Path(DEFAULT_BASE).as_uri() + "/"

    def open_at(uri: str) -> Store:
        if request.given_up:
            raise Unreachable(request.given_up)
        is_inside = request.base and uri.startswith(here)
        return open_store(f"{Path(request.base).as_uri()}/{uri[len(here) :]}" if is_inside else uri)

    try:
        for is_good, sentence in commit_newest(
            Path(request.folder),
            request.attempt and Attempt(*request.attempt),
            request.where,
            is_complete=request.is_complete,
            open_at=open_at,
            elsewhere=Path(request.elsewhere) if request.elsewhere else None,
        ):
            sys.stdout.write(f"\n{json.dumps([is_good, sentence])}\n")
            sys.stdout.flush()
    except CloudtrainError as error:
        sys.exit(error.message)
    sys.stdout.flush()
    os._exit(0)  # threads of a storage library may wait for the storage
