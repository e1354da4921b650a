"""The last lines of a job's ranks, which are read once, however many pages show them."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from cloudtrain.contract.text import one_line
from cloudtrain.errors import PlatformError
from cloudtrain.runtime import parent_death

KEPT = 4 << 20
"""Bytes of memory for the last lines of a job, which are those that can be searched."""
SHOWN = 500
LONGEST = 2000
"""The most characters of a line that are kept."""
MOST_READ = 32
"""The most jobs whose lines are read at the same time."""
IDLE_SECONDS = 8.0
"""Reading ends after this time without a request for the job's lines. An open page requests them every 3 s."""
POLL_SECONDS = 0.5
_readers: set[Logs] = set()
_readers_lock = threading.Lock()


def command(platform: str, name: str) -> list[str]:
    """The command that prints the lines of a job until the job or this process ends."""
    program = [sys.executable, parent_death.__file__, sys.executable, "-m", "cloudtrain"]
    return [*program, "logs", "--follow", "--platform", platform, "--", name]


class Logs:
    """The lines of one job, which are read until the job ends or nothing requests them any longer. Thread-safe.

    Args:
        command: prints the lines. It is a process because, unlike a thread, it can be ended while it waits for a line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._lines: deque[str] = deque()
        self._size = 0
        self._used_at = time.monotonic()
        self._is_reading = False
        self.is_read = False
        """Whether the job had ended when its last line was read."""
        self.problem = ""
        """Why there are no more lines."""

    @property
    def is_idle(self) -> bool:
        return time.monotonic() - self._used_at > IDLE_SECONDS

    def last(self, rank: str = "", part: str = "") -> Sequence[str]:
        """The last lines of a rank, or of all, that contain ``part``, ignoring case; oldest first."""
        self._used_at = time.monotonic()
        self._start()
        prefix, part = f"[rank {rank}] " if rank else "", part.lower()
        with self._lock:
            lines = [*self._lines]
        fit = (line for line in reversed(lines) if line.startswith(prefix) and part in line.lower())
        return [*islice(fit, SHOWN)][::-1]

    def _start(self) -> None:
        with self._lock:
            if self.is_read or self._is_reading:
                return
            with _readers_lock:
                if sum(not one.is_idle for one in _readers) >= MOST_READ:
                    self.problem = (
                        f"The output of {MOST_READ} other jobs is being read. Open this page again later."
                    )
                    return
                _readers.add(self)
            self._is_reading, self.problem = True, ""
            self._clear()
        thread = threading.Thread(target=self._read, name=f"logs of {self._command[-1]}", daemon=True)
        thread.start()
        thread.join(1.0)  # most jobs have few lines, which are complete by then

    def _read(self) -> None:
        """Read until the job ends, or no page has requested its lines for a while."""
        is_read = False
        try:
            for line in self._output():
                self._keep(line[:LONGEST])
            is_read = not self.is_idle
        except (PlatformError, OSError) as error:
            self.problem = one_line(error)
        finally:
            with _readers_lock:
                _readers.discard(self)
            with self._lock:
                self._is_reading, self.is_read = False, is_read
                if self.is_idle and not is_read:
                    self._clear()

    def _output(self) -> Iterator[str]:
        """The lines of the command, which is killed when this reader is idle. Raises PlatformError if it fails."""
        environ = {**os.environ, "PYTHONSAFEPATH": "1"}
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environ
            ) as process,
            selectors.DefaultSelector() as selector,
        ):
            assert process.stdout
            selector.register(process.stdout, selectors.EVENT_READ)
            rest = b""
            try:
                while not self.is_idle:
                    if not selector.select(POLL_SECONDS):
                        continue
                    data = os.read(process.stdout.fileno(), 1 << 16)
                    *lines, rest = (rest + data).split(b"\n")
                    if not data or len(rest) > LONGEST:
                        lines, rest = [*lines, *([rest] if rest else [])], b""
                    yield from (line.decode("utf-8", "backslashreplace") for line in lines)
                    if not data:
                        break
            finally:
                if self.is_idle:
                    process.kill()
            if process.wait() and not self.is_idle:
                errors.seek(0)
                raise PlatformError(errors.read(LONGEST).decode("utf-8", "replace").strip())

    def _keep(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)
            self._size += sys.getsizeof(line)
            while self._size > KEPT:
                self._size -= sys.getsizeof(self._lines.popleft())

    def _clear(self) -> None:
        self._lines.clear()
        self._size = 0
