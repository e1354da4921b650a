"""Sends the output of a host to the leader, and prints there what the other hosts send.

A host that cannot send its lines in time, because the leader or the reader of its log is slow, drops some and reports
how many, so that its ranks never wait. Its own log has all lines.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections import deque
from collections.abc import Iterator

from cloudtrain.observe import EventLog
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK, to_line
from cloudtrain.runtime.leader_client import LeaderClient
from cloudtrain.runtime.output import LONGEST_LINE, write_all, write_lines

READ_SIZE = 1 << 16
CHUNK = 1 << 16
"""The most bytes of lines in one message, unless a single line is longer."""
WINDOW = 1 << 18
"""The most bytes that a host has sent and the leader has not printed."""
MOST_WAITING = 4 << 20
"""The most bytes of lines that wait on a host to be sent."""
FLUSH_SECONDS = 10.0
"""After this time without progress, a host that ends stops waiting for its last lines to be printed."""


class OutputForwarder:
    """Copies all output of this process to the leader. Use as a context manager, which closes the client.

    Output before `attach` is queued.
    """

    def __init__(self, host: str, target: int = 1) -> None:
        self._host = host
        self._target = target
        self._client: LeaderClient | None = None
        self._lock = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = self._on_the_way = self._left_out = 0
        self._partial = b""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)

    def __enter__(self) -> OutputForwarder:
        self._own = os.dup(self._target)
        self._read, write = os.pipe()
        os.dup2(write, self._target)
        os.close(write)
        self._thread.start()
        return self

    def attach(self, client: LeaderClient) -> None:
        """Send to this leader from now on."""
        client.on_taken = self._taken
        with self._lock:
            self._client = client
            self._send()

    def __exit__(self, *_: object) -> None:
        os.dup2(self._own, self._target)
        self._ending.set()
        self._thread.join()
        self._flush()
        os.close(self._own)
        os.close(self._read)

    def _run(self) -> None:
        while True:
            ready = select.select([self._read], [], [], 0.0 if self._ending.is_set() else 0.1)[0]
            data = os.read(self._read, READ_SIZE) if ready else b""
            if data:
                with contextlib.suppress(OSError):  # a full disk: the ranks continue
                    write_all(self._own, data)
                self._add(data)
            elif ready or self._ending.is_set():
                break
        if self._partial:
            self._add(b"\n")

    def _add(self, data: bytes) -> None:
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        if len(self._partial) > LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        with self._lock:
            for line in lines:
                if self._waiting_bytes + len(line) > MOST_WAITING:
                    self._left_out += 1
                    continue
                self._report_left_out()
                self._wait(line + b"\n")
            self._send()

    def _report_left_out(self) -> None:
        if self._left_out:
            note = (
                f"[cloudtrain] {self._left_out:,} lines of {self._host} are left out here: see its own log\n"
            )
            self._left_out = 0
            self._wait(note.encode())

    def _wait(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def _send(self) -> None:
        """Send lines until `WINDOW` bytes are in flight. The caller holds the lock."""
        while self._client and self._waiting and self._on_the_way < WINDOW:
            chunk = [self._waiting.popleft()]
            size = len(chunk[0])
            while self._waiting and size + len(self._waiting[0]) <= CHUNK:
                size += len(self._waiting[0])
                chunk.append(self._waiting.popleft())
            self._waiting_bytes -= size
            self._on_the_way += size
            text = b"".join(chunk).decode("utf-8", "surrogateescape")
            self._client.send({"type": "lines", "text": text})

    def _taken(self, count: int) -> None:
        """Record that the leader has printed ``count`` bytes. Called in the client's thread."""
        with self._lock:
            self._on_the_way -= count
            self._send()
            self._lock.notify()

    def _flush(self) -> None:
        """Wait until everything is printed or there is no progress, and close the client."""
        with self._lock:
            self._report_left_out()
            self._send()
            while self._client and self._client.is_connected and (self._waiting or self._on_the_way):
                if not self._lock.wait(FLUSH_SECONDS):
                    break
        if self._client:
            self._client.close()


class ForwardedOutput:
    """Prints the lines of other hosts in a thread, because a slow reader of the log must not block the leader.

    Event lines are recorded as events of the leader's host.

    Args:
        events: the events of the leader's host.
        target: the descriptor to print to.
    """

    def __init__(self, events: EventLog, target: int = 1) -> None:
        self._events = events
        self._target = target
        self._received: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._printed: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="forwarded", daemon=True)
        self._thread.start()

    def put(self, host: str, text: str) -> None:
        """Print the lines of a host. Never waits."""
        self._received.put((host, text.encode("utf-8", "surrogateescape")))

    def printed(self) -> Iterator[tuple[str, int]]:
        """The hosts, and the number of bytes printed for each since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._printed.get_nowait()

    def close(self, timeout: float = FLUSH_SECONDS) -> None:
        """Print the remaining lines, as far as the reader of the log accepts them within ``timeout`` seconds."""
        self._received.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        mark = MARK.encode()
        while item := self._received.get():
            host, data = item
            plain: list[bytes] = []
            events: list[bytes] = []
            for line in data.split(b"\n")[:-1]:
                event = parse_event_line(line, host) if line.startswith(mark) else None
                if event:
                    events.append(to_line(event))
                else:
                    plain.append(line + b"\n")
            with contextlib.suppress(OSError):  # a full disk
                write_lines(self._target, b"".join(plain))
            with contextlib.suppress(OSError):
                if events:
                    self._events.append(b"".join(events))
            self._printed.put((host, len(data)))
