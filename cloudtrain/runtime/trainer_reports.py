"""Receives the reports of a Hugging Face Trainer about its training, from scripts that do not use cloudtrain.

Its ``KubeflowCallback`` (from transformers 5.4 on) is active if `TRAINER_URL` is set. Every five seconds, rank 0 posts
the last step, the number of steps, and its metrics, and waits up to five seconds for the response. Here, the variable
contains a port of this host, to which any process of the machine may connect. So connections without the token are
dropped, and the port is closed if there are too many of them, after which reports fail immediately.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Callable

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import LARGEST_NUMBER, LARGEST_REPORT, Fields, parse_json
from cloudtrain.contract.frameworks import LOOPBACK
from cloudtrain.contract.trackers import TRAINER_TOKEN_FILE, TRAINER_URL
from cloudtrain.observe.events import Event, EventLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.runtime.host_config import HostConfig

OFF = "DISABLE_KUBEFLOW_INTEGRATION"
"""With the value ``TRUE``, the Trainer does not report."""

STEP, TOTAL = "current_step", "total_steps"
"""The metrics with the progress. The last report has no step: the training has ended, possibly early."""
NOT_METRICS = (STEP, TOTAL, "current_epoch")
MOST_METRICS = 256
LONGEST_NAME = 64
"""In characters. `MOST_METRICS` and this are limits of Kubeflow's API."""

LARGEST_HEAD = 8 * 1024
"""The most bytes of the request line and the headers."""
LONGEST_COUNT = 16
"""The number of digits of `LARGEST_NUMBER`. Python 3.9 needs seconds to parse a number of a million digits."""

CLOSE_SECONDS = 5.0
MOST_PEERS = 32
"""The most open connections. A further one replaces the oldest."""
BACKLOG = 1024
"""The most connections that wait to be accepted. A further one, even with a report, waits for a second."""
PATIENCE = 5.0
"""How long a connection may take to send its report."""
MOST_REFUSED, REFUSED_RATE = 200.0, 1.0
"""The number of connections without a report that are tolerated in a row, and then per second."""
MOST_WAITING = 100
"""The most reports that wait to be recorded. The oldest are dropped."""

_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether reports are not disabled, and not sent to another server."""
    return TRAINER_URL not in environ and environ.get(OFF, "").upper() != "TRUE"


@dataclass
class _Peer:
    """A connection that has not sent its report yet."""

    until: float
    data: bytearray = field(default_factory=bytearray)
    body_at: int = 0
    """The position of the body; 0 until the head is complete."""
    size: int | None = 0
    """The size of the body; None if the request is refused."""


class TrainerReports:
    """Receives reports in a thread, until `close`.

    Args:
        folder: the folder for the token, which only this user can read.
        taken: the names of metrics that the job gets from another source.
        environ: the variables of the job.
        warn: called once with a sentence if the port is closed.

    Raises:
        OSError: there is no port, or the disk is full.
        RuntimeError: there are too many threads.
    """

    def __init__(
        self,
        folder: Path,
        events: EventLog,
        taken: Collection[str],
        environ: Mapping[str, str],
        warn: Callable[[str], object],
    ) -> None:
        self._token = os.urandom(32).hex().encode()
        token_file = folder / "trainer-token"
        with open(os.open(token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(self._token)
        self._events = events
        self._taken = taken
        self._warn = warn
        self._last: dict[str, str] = {}
        """The last value of each metric."""
        self._total = 0
        self._waiting: deque[tuple[float, bytes]] = deque(maxlen=MOST_WAITING)
        self._allowance, self._counted_at = MOST_REFUSED, time.monotonic()
        self._peers: dict[socket.socket, _Peer] = {}
        with contextlib.ExitStack() as opened:
            self._selector = opened.enter_context(selectors.DefaultSelector())
            self._listener = opened.enter_context(_bound(0))
            port = self._listener.getsockname()[1]
            # while this socket is open, no other user can get the port, and receive the token
            self._place = opened.enter_context(_bound(port))
            self._listener.listen(BACKLOG)
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._alarm, self._alarmed = map(opened.enter_context, socket.socketpair())
            self._selector.register(self._alarmed, selectors.EVENT_READ, "end")
            url = f"http://{LOOPBACK}:{port}/"
            token = str(token_file.absolute())
            self.variables = {**_past_proxy(environ), TRAINER_URL: url, TRAINER_TOKEN_FILE: token}
            """The variables for the ranks."""
            self._thread = threading.Thread(target=self._run, name="trainer-reports", daemon=True)
            self._thread.start()
            opened.pop_all()

    @classmethod
    def receive(
        cls,
        config: HostConfig,
        environ: Mapping[str, str],
        events: EventLog,
        warn: Callable[[str], object],
    ) -> TrainerReports | None:
        """Receive the reports of a job on the host of rank 0. None on other hosts, or if the reports are not wanted."""
        if config.host.current != config.distribution_hosts[0] or not is_wanted(environ):
            return None
        taken = {name for name, _ in config.settings.metric_definitions}
        with contextlib.suppress(OSError, RuntimeError):  # a full disk, no more threads: progress is unknown
            return cls(config.paths.run, events, taken, environ, warn)
        return None

    def close(self) -> None:
        """End the thread. Waits for `CLOSE_SECONDS` at most, because the disk may hang when it writes a warning."""
        self._alarm.close()
        self._thread.join(CLOSE_SECONDS)
        self._place.close()

    def take(self) -> list[Event]:
        """The events in the reports since the last call."""
        events = []
        while self._waiting:
            moment, body = self._waiting.popleft()
            with contextlib.suppress(ValueError):
                events += [{**event, "time": round(moment, 3)} for event in self._read(body)]
        return events

    def _read(self, body: bytes) -> list[Event]:
        """The events in a report. Raises ValueError if it is invalid."""
        status = Fields(parse_json(body)).fields("trainerStatus")
        found = status.objects("metrics", ())[:MOST_METRICS]
        values = {each.text("name"): each.text("value") for each in found}
        total = _count(values.get(TOTAL, str(self._total)))
        step = total if status.integer("progressPercentage", 0) == 100 else _count(values.get(STEP, "-1"))
        events = []
        if 1 <= total <= LARGEST_NUMBER:
            self._total = total
            if 0 <= step <= total:
                events.append(self._events.record("step", step=step, total=total, stalled=0.0))
        for name, value in values.items():
            if self._last.get(name) == value or name in NOT_METRICS or name in self._taken:
                continue
            if 0 < len(name) <= LONGEST_NAME and (name in self._last or len(self._last) < MOST_METRICS):
                self._last[name] = value
                with contextlib.suppress(ValueError):
                    events.append(self._events.record("metric", name=name, value=float(value), rank=0))
        return events

    # -- in the thread

    def _run(self) -> None:
        is_ended = False
        while not is_ended:
            for key, _ in self._selector.select(PATIENCE if self._peers else None):
                if key.data == "end":
                    is_ended = True
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._peers:  # it may have been dropped for another one
                    self._receive(key.fileobj)
            now = time.monotonic()
            for peer in [peer for peer, state in self._peers.items() if state.until < now]:
                self._drop(peer)
            if self._allowance < 1 and self._listener.fileno() >= 0:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._warn(
                    "the reports of a Hugging Face Trainer are no longer received: too many other processes "
                    "connect to the port for them"
                )
        for each in [*self._peers, self._listener, self._alarmed]:
            each.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except BlockingIOError:  # the connection has already ended
            return
        except OSError:  # too many open files: count it, so that this thread does not spin
            self._count_refused()
            return
        peer.setblocking(False)
        if len(self._peers) == MOST_PEERS:
            self._drop(next(iter(self._peers)))
        self._peers[peer] = _Peer(time.monotonic() + PATIENCE)
        self._selector.register(peer, selectors.EVENT_READ)

    def _receive(self, peer: socket.socket) -> None:
        state = self._peers[peer]
        try:
            new = peer.recv(LARGEST_REPORT)
        except BlockingIOError:
            return
        except OSError:
            new = b""
        searched = max(0, len(state.data) - 3)
        state.data += new
        if not state.body_at:
            end = state.data.find(b"\r\n\r\n", searched, LARGEST_HEAD)
            if end >= 0:
                state.body_at, state.size = end + 4, self._length(bytes(state.data[:end]))
        most = LARGEST_REPORT if state.body_at else LARGEST_HEAD
        if not new or state.size is None or len(state.data) > most:
            self._drop(peer)
        elif state.body_at and len(state.data) >= state.body_at + state.size:
            with contextlib.suppress(OSError):
                peer.send(_RESPONSE)
            body = bytes(state.data[state.body_at : state.body_at + state.size])
            self._waiting.append((self._events.clock(), body))
            self._drop(peer, is_refused=False)

    def _length(self, head: bytes) -> int | None:
        """The size of the body if the request has the token; None if it does not."""
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        given = fields.get(b"authorization", b"").partition(b"bearer ")[2]
        size = fields.get(b"content-length", b"")
        is_valid = hmac.compare_digest(given.strip(), self._token) and size.isdigit() and len(size) < 9
        return int(size) if is_valid else None

    def _drop(self, peer: socket.socket, *, is_refused: bool = True) -> None:
        if is_refused:
            self._count_refused()
        del self._peers[peer]
        self._selector.unregister(peer)
        peer.close()

    def _count_refused(self) -> None:
        now = time.monotonic()
        earned = REFUSED_RATE * (now - self._counted_at)
        self._allowance = min(self._allowance + earned, MOST_REFUSED) - 1
        self._counted_at = now


def _count(text: str) -> int:
    """A number of steps. Raises ValueError if ``text`` is not a number, or too long."""
    if len(text) > LONGEST_COUNT:
        raise ValueError(f"a number of {len(text)} characters")
    return int(text)


def _past_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make programs connect to this host without a proxy; none if there is no proxy."""
    if not (environ.get("http_proxy") or environ.get("HTTP_PROXY")):
        return {}
    found = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        direct = environ.get(name, environ.get(other, ""))
        if direct != "*":
            found[name] = f"{direct},{LOOPBACK}".lstrip(",")
    return found


def _bound(port: int) -> socket.socket:
    """A socket on a port of this host. Two sockets of the same user can have the same port. Raises OSError."""
    found = socket.socket()
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind((LOOPBACK, port))
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found
