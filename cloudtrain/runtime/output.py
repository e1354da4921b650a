"""The output of all ranks of a host: merged line by line, stored per rank, searched for metrics."""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import BinaryIO, Callable

from cloudtrain._dataclass import dataclass
from cloudtrain._secrets.hiding import StreamHider, ValueHider
from cloudtrain._system import descriptors
from cloudtrain._system.descriptors import open_named_pipe, set_blocking, unread
from cloudtrain.observe.events import MARK

READ_SIZE = 1 << 16
LONGEST_LINE = 1 << 16
"""Bytes after which an unfinished line is written anyway."""
DRAIN_READS = 1024
TAIL_LINES = 50
IDLE_SECONDS = 0.5
"""How long the state of a progress bar, a line that carriage returns overwrite, waits before it is written."""
UNFINISHED_SECONDS = 10.0
"""How long any other unfinished line, which may be printed in parts, waits for its end."""
SETTLE_SECONDS = 0.2
"""Seconds that `OutputMerger.tail` may wait for output that was written but not read yet."""

EVENT_MARK = MARK.rstrip().encode()
_WRITING = threading.Lock()
"""Held while whole lines are written to the job's log, because a write of more than 4 KiB to a pipe is not atomic."""

OnLines = Callable[["Stream", Sequence[str]], None]
OnError = Callable[[OSError], object]

NOTHING_HIDDEN = ValueHider(())


@dataclass
class Stream:
    """The output of one rank, or of the launcher (``rank`` is None)."""

    rank: int | None
    descriptor: int
    file: BinaryIO | None = None
    """The rank's log: the unchanged stream, except for hidden values."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    pending: bytes = b""
    changed: float = 0.0
    """When the last output arrived, on the monotonic clock."""
    hider: StreamHider = field(default_factory=lambda: StreamHider(NOTHING_HIDDEN))

    @property
    def prefix(self) -> bytes:
        return b"" if self.rank is None else b"[rank %d] " % self.rank

    def take(self, data: bytes) -> list[bytes]:
        """Add ``data`` and return the complete lines, without line ends.

        A progress bar overwrites its line with carriage returns: only its last state is returned.
        """
        rest = self.pending
        *lines, self.pending = (rest + data).split(b"\n")
        if len(self.pending) > LONGEST_LINE:
            lines.append(self.pending)
            self.pending = b""
        return [_shown(line) for line in lines] if b"\r" in data or b"\r" in rest else lines

    def rest(self) -> list[bytes]:
        """Return the unfinished line as a complete one."""
        return self.take(b"\n") if self.pending else []

    @property
    def has_waited(self) -> bool:
        """Whether the unfinished line has waited long enough to be written."""
        patience = IDLE_SECONDS if b"\r" in self.pending else UNFINISHED_SECONDS
        return time.monotonic() - self.changed >= patience

    def last_lines(self) -> tuple[str, ...]:
        """The tail, followed by the unfinished line."""
        unfinished = (_text(_shown(self.pending)),) if self.pending else ()
        return (*self.tail, *unfinished)[-TAIL_LINES:]

    def is_read(self) -> bool:
        """Whether the pipe is empty."""
        return not unread(self.descriptor)


def _shown(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


class OutputMerger:
    """Reads all streams of a host in one thread and writes them, line by line, to one descriptor.

    A slow reader of the merged output slows the ranks down, as a pipe does. Output is only lost if it cannot be
    written, for example to a full disk. ``on_error`` is then called once, from that thread, with an OSError that names
    the lost output; the ranks continue.
    """

    def __init__(
        self,
        target: int,
        folder: Path | None,
        on_lines: OnLines | None = None,
        on_error: OnError | None = None,
        hider: ValueHider = NOTHING_HIDDEN,
    ) -> None:
        """
        Args:
            folder: the folder for the log of each rank; None for no such logs.
            hider: hides values in all output.
        """
        self._target = target
        self._folder = folder
        self._on_lines = on_lines
        self._on_error = on_error
        self._hider = hider
        self._failed = False
        self._selector = selectors.DefaultSelector()
        self._streams: list[Stream] = []
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._busy = threading.Lock()
        """Held between reading output and adding it to the tail."""

    def add_rank(self, pipe: str, rank: int) -> None:
        """Create the named pipe that the rank will write to, and start reading it."""
        descriptor = open_named_pipe(pipe)
        folder = self._folder
        file = open(folder / f"rank-{rank}.log", "ab", buffering=0) if folder else None  # noqa: SIM115 - see close()
        self._add(Stream(rank, descriptor, file, hider=StreamHider(self._hider)))

    def add_launcher(self) -> BinaryIO:
        """Start reading the launcher's own output; returns the file for it to write to."""
        read, write = os.pipe()
        set_blocking(read, False)
        self._add(Stream(None, read, hider=StreamHider(self._hider)))
        return open(write, "wb", buffering=0)

    def _add(self, stream: Stream) -> None:
        self._streams.append(stream)
        self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def close(self) -> None:
        """Read the remaining output and end. All processes must have stopped writing."""
        os.write(self._wake_write, b"x")
        self._thread.join()
        for stream in self._streams:
            os.close(stream.descriptor)
            if stream.file:
                stream.file.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._selector.close()

    @property
    def heard(self) -> float:
        """When a process last wrote anything, on the clock of `time.monotonic`; 0 for never."""
        return max((stream.changed for stream in self._streams), default=0.0)

    def end_of_log(self, rank: int, size: int) -> str:
        """At most ``size`` bytes at the end of a rank's log; empty if the rank has none. Call `tail` first."""
        stream = next((stream for stream in self._streams if stream.rank == rank), None)
        if stream is None or stream.file is None:
            return ""
        with contextlib.suppress(OSError), open(stream.file.name, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - size))
            return _text(log.read(size))
        return ""

    def tail(self, rank: int | None) -> tuple[str, ...]:
        """The last lines of a rank, or of the launcher for None, including everything written before this call.

        The wait for that output is bounded, because a process may write faster than its output is read.
        """
        stream = next((stream for stream in self._streams if stream.rank == rank), None)
        if stream is None:
            return ()
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            if self._busy.acquire(timeout=left):
                try:
                    if stream.is_read():
                        return stream.last_lines()
                finally:
                    self._busy.release()
                time.sleep(0.001)  # the thread needs the lock
        return stream.last_lines()

    def _run(self) -> None:
        closing = False
        while not closing:
            ready = self._selector.select(IDLE_SECONDS)
            with self._busy:
                for key, _ in ready:
                    if key.data is None:
                        closing = True
                    else:
                        self._drain(key.data, READ_SIZE)
                for stream in self._streams:
                    if stream.has_waited:
                        self._finish_line(stream)
        for stream in self._streams:
            # bounded, because an escaped process may write forever
            for _ in range(DRAIN_READS):
                if not self._drain(stream, READ_SIZE):
                    break
            self._finish_line(stream)

    def _drain(self, stream: Stream, size: int) -> bool:
        """Read once; returns False if there is nothing to read."""
        try:
            data = os.read(stream.descriptor, size)
        except BlockingIOError:
            return False
        if not data:
            if stream.descriptor in self._selector.get_map():
                self._selector.unregister(stream.descriptor)
            return False
        stream.changed = time.monotonic()
        self._keep(stream, stream.hider.feed(data))
        return True

    def _finish_line(self, stream: Stream) -> None:
        """Pass on output that was held for the rest of a line, or of a value to hide."""
        if held := stream.hider.flush():
            self._keep(stream, held)
        self._pass_on(stream, stream.rest())

    def _keep(self, stream: Stream, data: bytes) -> None:
        if stream.file:
            with self._reporting(f"the log of rank {stream.rank}"):
                write_all(stream.file.fileno(), data)
        self._pass_on(stream, stream.take(data))

    def _pass_on(self, stream: Stream, lines: list[bytes]) -> None:
        if not lines:
            return
        texts = [_text(line) for line in (lines if self._on_lines else lines[-TAIL_LINES:])]
        stream.tail.extend(texts)
        with self._reporting("the log of all ranks"):
            write_lines(self._target, prefixed(stream.prefix, lines))
        if self._on_lines:
            with self._reporting("the metrics found in the log"):
                self._on_lines(stream, texts)

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """Continue after an OSError, because the ranks would block on their output if reading stopped."""
        try:
            yield
        except OSError as error:
            if self._failed:
                return
            self._failed = True
            if self._on_error:
                reason = error.strerror or str(error)
                self._on_error(
                    OSError(error.errno, f"{what} cannot be written, and a part of it is lost: {reason}")
                )


def prefixed(prefix: bytes, lines: Sequence[bytes]) -> bytes:
    """``lines``, each with ``prefix`` and a line end. There must be at least one line.

    Without a prefix, a line that looks like an event of the runtime gets a space, because only the runtime may report
    events.
    """
    if not prefix:
        lines = [b" " + line if line.startswith(EVENT_MARK) else line for line in lines]
    return prefix + (b"\n" + prefix).join(lines) + b"\n"


def say(line: str) -> None:
    """Print a line of the runtime itself to the log of the job."""
    with contextlib.suppress(OSError):  # a full disk: the output of the ranks will hit it too
        write_lines(1, f"[cloudtrain] {line}\n".encode("utf-8", "backslashreplace"))


def write_lines(descriptor: int, data: bytes) -> None:
    """Write whole lines to the log of the job, even while other threads write."""
    with _WRITING:
        write_all(descriptor, data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything. Ignores the error if the reader has ended."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        descriptors.write_all(descriptor, data)
