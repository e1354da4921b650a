"""One host of a job as a container, over its whole lifetime."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from cloudtrain._system.signals import SIGKILL
from cloudtrain.contract import FailureClass, FailureReport, Paths
from cloudtrain.engine.client import Ended, EngineClient, Spec
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.output import Stream, prefixed, write_all
from cloudtrain.runtime.supervisor.hosts import read_left

LISTEN_SECONDS = 10.0
"""How long a runtime may take, from the start of its container, to install its signal handlers."""

READ_SECONDS = 5.0
"""How long to wait for the rest of the output after the container has ended."""

INTERRUPTED = 128 + signal.SIGTERM
ENDS = (signal.SIGTERM, SIGKILL)
KILLED = 128 + SIGKILL

_MEMORY_HINT = (
    "Raise platform_options.memory, or use less memory: a smaller batch, or fewer data loader workers."
)


class ContainerHost:
    """A `RunningHost`. Signals that are sent before its container starts are delivered once it handles them."""

    def __init__(
        self,
        name: str,
        paths: Paths,
        *,
        own_program: bool,
        listens: Callable[[], bool] = lambda: True,
        prefix: str = "",
        metrics: MetricFinder | None = None,
    ) -> None:
        """
        Args:
            paths: its folders. A program that fails writes the reason to `Paths.failure`.
            own_program: whether the container runs the image's own program instead of cloudtrain's runtime.
            listens: whether the container handles signals yet. Until it does, the kernel drops them.
            prefix: the prefix of each of its lines in the log.
        """
        self.name = name
        self._paths = paths
        self._own_program = own_program
        self._listens = listens
        self._prefix = prefix.encode()
        self._metrics = metrics
        self._client: EngineClient | None = None
        self._container = ""
        self._started_at: float | None = None
        self._lock = threading.Lock()
        self._waiting: list[int] = []
        """Signals to send once the container handles them."""
        self._sent: list[int] = []
        self._ended: Ended | None = None
        self._report: FailureReport | None = None
        """Why it could not start."""
        self._output = Stream(rank=None, descriptor=-1)

    # -- called by the supervisor's thread

    def poll(self) -> int | None:
        if self._ended:
            return self._ended.exit_code
        self._send_waiting()
        return None

    def send_signal(self, number: int) -> None:
        with self._lock:
            if number not in self._waiting and not (number in ENDS and number in self._sent):
                self._waiting.append(number)
        self._send_waiting()

    def abandon(self) -> None:
        self.send_signal(SIGKILL)

    def _send_waiting(self) -> None:
        """Send the waiting signals if the container handles signals, or should by now."""
        if not self._waiting or self._started_at is None or self._client is None:
            return
        is_late = time.monotonic() - self._started_at > LISTEN_SECONDS
        if SIGKILL in self._waiting or is_late or self._listens():
            with self._lock:
                now, self._waiting = self._waiting, []
                self._sent += now
            for number in now:
                self._client.kill(self._container, number)

    def lost(self, name: str) -> FailureReport:
        if self._report:
            return self._report
        ended = self._ended or Ended(1)
        return replace(
            self._read_report() or self._infer_report(ended),
            host=name,
            exit_code=ended.exit_code or 1,
            log_tail=tuple(self._output.tail),
            time=time.time(),
        )

    def _read_report(self) -> FailureReport | None:
        """The failure that the program reported; None if it reported nothing."""
        with contextlib.suppress(OSError):
            reason = read_left(self._paths, self._paths.failure).decode("utf-8", "replace").strip()
            if reason:
                return FailureReport.from_reason(reason) or FailureReport(FailureClass.USER_ERROR, reason)
        return None

    def _infer_report(self, ended: Ended) -> FailureReport:
        """A report derived from how the container ended."""
        code = ended.exit_code
        if ended.out_of_memory:
            what = f"the kernel killed the container of host {self.name} because it ran out of memory"
            return FailureReport(FailureClass.OUT_OF_MEMORY, what, _MEMORY_HINT, phase="train")
        if self._own_program and code != KILLED:
            return FailureReport(FailureClass.USER_ERROR, f"the image's program exited with code {code}")
        how = "was killed by SIGKILL" if code == KILLED else f"exited with code {code}: see job.log"
        why = f"its container {how}" + (f"; {ended.why}" if ended.why else "")
        return FailureReport.host_lost(self.name, why, time.time())

    # -- called by the thread that starts the containers

    @property
    def cancelled(self) -> bool:
        """Whether it was signalled before it started."""
        return bool(self._waiting) and self._started_at is None

    def give_up(self, report: FailureReport | None) -> None:
        """Mark the host as failed with ``report``, or as cancelled. A container that has started is killed."""
        self._report = report
        if self._started_at is None:
            self._ended = Ended(1 if report else -signal.SIGTERM)
        else:
            self.send_signal(SIGKILL)

    def run(self, client: EngineClient, container: str, spec: Spec, log: int) -> None:
        """Start ``container``, which was created from ``spec``. Raises PlatformError.

        Args:
            log: the descriptor to which its output is written. It is closed when the output ends.
        """
        self._client, self._container = client, container
        output = client.attach(container)  # before the start, so as not to miss output
        client.start(container)
        self._started_at = time.monotonic()
        reader = threading.Thread(target=self._read, args=(output, log), daemon=True)
        reader.start()
        threading.Thread(target=self._wait, args=(client, spec, reader), daemon=True).start()

    def _wait(self, client: EngineClient, spec: Spec, reader: threading.Thread) -> None:
        try:
            ended = client.wait(self._container, spec)
        except PlatformError as error:
            ended = Ended(1, why=error.message)
        reader.join(READ_SECONDS)
        # a program that ended because of a signal, without a report, did not fail
        asked = self._sent if self._own_program else SIGKILL in self._sent
        self._ended = replace(ended, exit_code=INTERRUPTED) if asked and not self._report else ended

    def _read(self, output: Iterator[bytes], log: int) -> None:
        """Copy the output to the log in whole lines, because other hosts write there too."""
        with open(log, "wb", buffering=0) as file, contextlib.suppress(Exception):
            # the thread that waits for the container reports a failure of the engine
            for data in output:
                self._write(self._output.take(data), file.fileno())
            self._write(self._output.rest(), file.fileno())
        if self._metrics:
            self._metrics.close()

    def _write(self, lines: list[bytes], log: int) -> None:
        if not lines:
            return
        texts = [line.decode("utf-8", "backslashreplace") for line in lines]
        self._output.tail.extend(texts)
        with contextlib.suppress(OSError):  # a full disk must not block the container
            write_all(log, prefixed(self._prefix, lines))
            if self._metrics:
                self._metrics(self._output, texts)
