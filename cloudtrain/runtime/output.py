"""The output of all ranks of a host: merged line by line, kept per rank, searched for metrics."""

from __future__ import annotations

import os
import re
import selectors
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Callable

READ_SIZE = 1 << 16
LONGEST_LINE = 1 << 16
"""Bytes after which a line without an end is passed on all the same."""
DRAIN_READS = 1024
TAIL_LINES = 50
IDLE_SECONDS = 0.5
"""How long an unfinished line may wait for its end before it is shown."""

OnLine = Callable[["Stream", str], None]


@dataclass
class Stream:
    """What one rank (or the launcher: ``rank`` None) writes."""

    rank: int | None
    descriptor: int
    file: BinaryIO | None = None
    """Keeps the stream as it came."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    pending: bytes = b""

    @property
    def prefix(self) -> bytes:
        return b"" if self.rank is None else b"[rank %d] " % self.rank

    def take(self, data: bytes) -> list[bytes]:
        """Add ``data`` and give the lines that are complete, without their ends.

        A progress bar overwrites its line with carriage returns: what stands last is kept.
        """
        *lines, self.pending = (self.pending + data).split(b"\n")
        if len(self.pending) > LONGEST_LINE:
            lines.append(self.pending)
            self.pending = b""
        return [line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines]

    def rest(self) -> list[bytes]:
        """The unfinished line, as if it had ended."""
        return self.take(b"\n") if self.pending else []


class OutputMerger:
    """Reads all streams of a host in one thread and writes them, line by line, to one descriptor.

    A slow reader of the merged output slows the ranks down, as a pipe does; nothing is dropped.
    """

    def __init__(self, target: int, folder: Path, on_line: OnLine | None = None) -> None:
        self._target = target
        self._folder = folder
        self._on_line = on_line
        self._selector = selectors.DefaultSelector()
        self._streams: list[Stream] = []
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def add_rank(self, pipe: str, rank: int) -> None:
        """Make the named pipe that the rank will write to, and read it."""
        os.mkfifo(pipe, 0o600)
        # read and write: so that it opens at once, and a rank's exit is no end of file
        descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        file = open(self._folder / f"rank-{rank}.log", "ab")  # noqa: SIM115 - closed by close()
        self._add(Stream(rank, descriptor, file))

    def add_launcher(self, descriptor: int) -> None:
        """Read what the launcher itself says."""
        os.set_blocking(descriptor, False)
        self._add(Stream(None, descriptor))

    def _add(self, stream: Stream) -> None:
        self._streams.append(stream)
        self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Read what is left, which no process adds to any more, and end."""
        os.write(self._wake_write, b"x")
        self._thread.join()
        for stream in self._streams:
            os.close(stream.descriptor)
            if stream.file:
                stream.file.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._selector.close()

    def tail(self, rank: int | None) -> tuple[str, ...]:
        """The last lines of a rank (of the launcher)."""
        return tuple(line for stream in self._streams if stream.rank == rank for line in tuple(stream.tail))

    def _run(self) -> None:
        closing = False
        while not closing:
            ready = self._selector.select(IDLE_SECONDS)
            for key, _ in ready:
                if key.data is None:
                    closing = True
                else:
                    self._drain(key.data, READ_SIZE)
            if not ready:
                for stream in self._streams:
                    self._pass_on(stream, stream.rest())
        for stream in self._streams:
            # bounded: a process that got away from us may write for ever
            for _ in range(DRAIN_READS):
                if not self._drain(stream, READ_SIZE):
                    break
            self._pass_on(stream, stream.rest())

    def _drain(self, stream: Stream, size: int) -> bool:
        """Read once; False where nothing is there."""
        try:
            data = os.read(stream.descriptor, size)
        except BlockingIOError:
            return False
        if not data:
            if stream.descriptor in self._selector.get_map():
                self._selector.unregister(stream.descriptor)
            return False
        if stream.file:
            stream.file.write(data)
            stream.file.flush()
        self._pass_on(stream, stream.take(data))
        return True

    def _pass_on(self, stream: Stream, lines: list[bytes]) -> None:
        if not lines:
            return
        write_all(self._target, b"".join(stream.prefix + line + b"\n" for line in lines))
        for line in lines:
            text = line.decode("utf-8", "backslashreplace")
            stream.tail.append(text)
            if self._on_line:
                self._on_line(stream, text)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; a reader that went away is no reason to stop."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except (BrokenPipeError, ConnectionResetError):
            return


class MetricFinder:
    """Looks for the numbers that ``metric_definitions`` describe."""

    def __init__(self, definitions: tuple[tuple[str, str], ...], on_metric: Callable[..., object]) -> None:
        self._definitions = [(name, re.compile(regex)) for name, regex in definitions]
        self._on_metric = on_metric

    def __call__(self, stream: Stream, line: str) -> None:
        for name, regex in self._definitions:
            match = regex.search(line)
            if match is None:
                continue
            try:
                value = float(match.group(1))
            except (TypeError, ValueError):
                continue
            self._on_metric("metric", name=name, value=value, rank=stream.rank)
