"""Follows a growing file on a cluster through one long-lived command."""

from __future__ import annotations

import contextlib
import shlex
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.remote_path import prologue, quoted
from cloudtrain.platforms.batch.remote_root import RemoteRoot
from cloudtrain.platforms.batch.shell import ConnectionLost, Unreachable
from cloudtrain.platforms.supervised.root import follow_lines
from cloudtrain.runtime.supervisor.record import RECORD

LOOK_SECONDS = 20.0
"""Seconds between two checks whether the job is over: a job that was killed cannot record that itself."""
PATIENCE = 600.0
"""Seconds without a connection after which following ends with an error."""
PAUSES = (0.5, 1.0, 2.0, 5.0, 15.0)
"""Seconds before each attempt to reconnect; the last one repeats."""

_SCRIPT = """r={folder}/{record} f={folder}/{file}
over() {{ grep -q '"ended_at": [0-9]' "$r" 2>/dev/null || [ ! -e "$r" ]; }}
until [ -f "$f" ]; do over && exit 0; sleep 1; done
tail -c +{start} -f "$f" & t=$!
trap 'kill $t; exit 0' TERM
until over; do sleep 1 & wait $!; done
kill $t
"""
"""Ends when the job's record contains its end, or the job has been removed."""


def follow_remote(root: RemoteRoot, job: str, file: str, is_over: Callable[[], bool]) -> Iterator[str]:
    """The lines of a file of a job, until the job ends.

    After a broken connection, it continues with the next byte: no line is lost or repeated.

    Args:
        is_over: whether the job has ended. Called at most every `LOOK_SECONDS`.

    Raises PlatformError if there is no connection for `PATIENCE` seconds, or the user has to log in.
    """
    feed = _Feed(root, job, file, is_over)
    try:
        yield from follow_lines(feed.read, while_=lambda: not feed.ended)
    finally:
        feed.close()


class _Feed:
    def __init__(self, root: RemoteRoot, job: str, file: str, is_over: Callable[[], bool]) -> None:
        self.ended = False
        """Whether the job is over: `read` then returns the rest of the file."""
        self._root = root
        self._job = job
        self._file = file
        self._is_over = is_over
        self._stream: AbstractContextManager[Iterator[bytes]] | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._failures = 0
        self._connected = False
        """Whether the login node has ever answered."""
        self._last_seen = time.monotonic()

    def read(self, position: int) -> bytes:
        """The next bytes; empty if none arrived for a while, or at the end."""
        if self.ended:
            self.close()
            return self._root.read_part(f"{self._job}/{self._file}", position)
        try:
            piece = self._next(position)
            if piece is None or self._look():
                self.ended = True
        except (ConnectionLost, Unreachable) as error:
            self.close()
            is_wrong_place = isinstance(error, Unreachable) and not self._connected
            if is_wrong_place or time.monotonic() - self._last_seen > PATIENCE:
                raise
            if self._failures == 1:
                warnings.warn(
                    f"{error.message}: it is tried again for {PATIENCE / 60:.0f} min. The job is not affected",
                    stacklevel=2,
                )
            time.sleep(PAUSES[min(self._failures, len(PAUSES) - 1)])
            self._failures += 1
            return b""
        self._connected, self._failures, self._last_seen = True, 0, time.monotonic()
        return piece or b""

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream:
            with contextlib.suppress(PlatformError):
                stream.__exit__(None, None, None)

    def _next(self, position: int) -> bytes | None:
        """The next piece, which may be empty; None when the command has ended."""
        if self._stream is None:
            self._stream = self._root.shell.stream(self._script(position))
            self._pieces = self._stream.__enter__()
        return next(self._pieces, None)

    def _look(self) -> bool:
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK_SECONDS
        return self._is_over()

    def _script(self, position: int) -> str:
        given = self._root.given
        folder = f"{quoted(given)}/{shlex.quote(self._job)}"
        file = shlex.quote(self._file)
        return prologue(given) + _SCRIPT.format(folder=folder, record=RECORD, file=file, start=position + 1)
