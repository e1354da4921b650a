"""The leading end of the connection to programs on hosts, which runs through a process such as ssh or srun."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence

from cloudtrain._system.descriptors import set_blocking
from cloudtrain._system.processes import signal_group
from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain._system.signals import SIGKILL
from cloudtrain.runtime.start.messages import READ_SIZE, Beat, FrameReader, Message

BEAT_SECONDS = 3.0
LONGEST_COMPLAINT = 1 << 16
"""How many of the last bytes of the process's standard error are kept."""


class HostLink:
    """The process that carries the connection, with a thread for each direction. Any thread may send.

    Args:
        command: starts the programs, and passes its input to all of them.
        take: called by the reading thread with the number of a host and its message.
        output: called by the reading thread with whole lines of output.
        ended: called by the reading thread with the reason when the connection has ended.
        noise: see `FrameReader`.
        errors: the standard error of the process, as for `subprocess.Popen`.
        shares_terminal: whether the process may prompt on the terminal. Ctrl-C does not end it.
        timeout: the seconds of silence after which the connection counts as ended. If set, both sides send heartbeats.

    Raises OSError if the process cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        take: Callable[[int, Message], object],
        output: Callable[[bytes], object],
        ended: Callable[[str], object],
        *,
        noise: tuple[bytes, ...] = (),
        errors: int | None = None,
        shares_terminal: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.reader = FrameReader(take, noise)
        self.timeout = timeout
        self._output, self._ended = output, ended
        self._shares_terminal = shares_terminal
        self._complained = b""
        self._outbox: SignalSafeQueue[bytes | None] = SignalSafeQueue()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=not shares_terminal,
            preexec_fn=_ignore_interrupt if shares_terminal else None,
        )
        self._threads = [
            threading.Thread(target=work, daemon=True, name=f"{work.__name__} {command[0]}")
            for work in (self._read, self._write)
        ]

    def start(self, first: bytes = b"") -> None:
        """Start the threads.

        Args:
            first: the bytes that are sent before the first message.
        """
        self._outbox.put(first)
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Send a message without waiting. Raises nothing if the connection has ended."""
        self._outbox.put(message.to_line())

    @property
    def waiting(self) -> int:
        """The number of messages that have not been sent yet."""
        return self._outbox.qsize()

    @property
    def is_read(self) -> bool:
        """Whether the output has been read to its end."""
        return not self._threads[0].is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the end of the output."""
        self._threads[0].join(seconds)

    def hang_up(self) -> None:
        """Close the input of the process, after all pending messages."""
        self._outbox.put(None)

    def close(self, seconds: float) -> None:
        """Hang up, give the process some seconds to end, and then kill it with its process group."""
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()
        self.process.wait()
        self.complaint()
        if self.process.stderr:
            self.process.stderr.close()

    def complaint(self) -> bytes:
        """The end of what the process has written to its standard error so far, if ``errors`` is a pipe."""
        errors = self.process.stderr
        if errors and not errors.closed:
            set_blocking(errors.fileno(), False)
            with contextlib.suppress(OSError):
                new = errors.read(LONGEST_COMPLAINT) or b""
                self._complained = (self._complained + new)[-LONGEST_COMPLAINT:]
        return self._complained

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._shares_terminal:
                self.process.kill()
            else:
                signal_group(self.process.pid, SIGKILL)

    def _read(self) -> None:
        why = "the connection has ended"
        assert self.process.stdout
        descriptor = self.process.stdout.fileno()
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(descriptor, selectors.EVENT_READ)
                while True:
                    if not selector.select(self.timeout):
                        why = f"no answer for {self.timeout:g} s"
                        break
                    data = os.read(descriptor, READ_SIZE)
                    if not data:
                        break
                    for lines in self.reader.read(data):
                        self._output(lines)
            self._output(self.reader.end())
        finally:
            self.process.stdout.close()
            self._ended(why)

    def _write(self) -> None:
        assert self.process.stdin
        with contextlib.suppress(OSError), self.process.stdin as pipe:
            while True:
                try:
                    data = self._outbox.get(timeout=BEAT_SECONDS if self.timeout else None)
                except queue.Empty:
                    data = Beat().to_line()
                if data is None:
                    return
                pipe.write(data)
                pipe.flush()


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
