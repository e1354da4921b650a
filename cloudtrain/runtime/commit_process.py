"""Commits what is in the memory of a host in another process, which is given up if the storage never answers.

A process that waits for a dead mount cannot be ended, not even by SIGKILL, and a thread that waits keeps its process
from ending.

Usage: ``python -c PROGRAM LIBRARY REQUEST``, with the `Request` as JSON. Prints a list for each sentence: whether it is
good news, and the sentence.
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
"""A process that has used no CPU and done no I/O for this long is taken for hung."""
SLOW = 50e6
"""Bytes per second: a mount of object storage uploads what was written in one call, which may take so much longer."""
LOOK_SECONDS = 0.02
LONGEST_LOOK = 0.5
"""Seconds of silence between two looks, at most: this process may have been paused together with the other."""
ON_DISK = "file://"


class Request(NamedTuple):
    """The arguments of `commit_newest`."""

    folder: str
    attempt: Attempt | None
    where: str
    is_complete: bool = False
    base: str = ""
    """The folder of the host, which may be ``/opt/ml`` for its ranks."""
    elsewhere: str = ""
    """A folder for what the storage does not take; empty: it stays in memory."""
    given_up: str = ""
    """Why the storage is not asked any more."""
    seconds: float = 0.0
    """How long to try storage that is away."""


def uris_in(folder: Path) -> list[str]:
    """The URIs of the copies in a memory folder."""
    return sorted({header.uri for _, header in read_headers(folder)})


def may_hang(folder: Path) -> bool:
    """Whether a commit of what is in this memory folder may wait for a mount."""
    return any(uri.startswith(ON_DISK) for uri in uris_in(folder))


def commit_in_process(
    request: Request, environ: Mapping[str, str], say: Callable[[bool, str], None], longest: float
) -> str:
    """Run `main`.

    Args:
        environ: variables that reach the storage.
        say: is called with what `commit_newest` yields.
        longest: the seconds after which the process is given up in any case.

    Returns why not all is saved; empty if it is. Raises Unreachable if the process is given up.
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
    """Returns the exit code of the process. Raises OSError if it cannot start."""
    command = [sys.executable, "-c", PROGRAM, LIBRARY, json.dumps(request)]
    with blocked(ENDING):  # a scheduler sends them to all processes; the runtime decides
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
            process.kill()  # not waited for: it may hang in a dead mount
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
    return time.monotonic(), 0  # without /proc, it is not known


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
    os._exit(0)  # threads of a framework of storage may wait for it
