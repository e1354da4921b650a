"""Reads the log of one container in a thread, to its end, whatever happens to connections meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeUnauthorized,
)
from cloudtrain.platforms.kubernetes.logs.lines import Line, LineParser, Position
from cloudtrain.platforms.kubernetes.logs.merge import Inlet

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api
    from cloudtrain.platforms.kubernetes.api.transport import LineStream

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 15.0
"""Seconds between two attempts to read a log that cannot be read."""
LAST_PAUSE = 2.0
"""The same for a container that has ended."""
LAST_SECONDS = 30.0
"""For so long, the end of the log of a container that has ended is requested again if it cannot be read."""

NOTHING = ((), (), b"")
MOST_SAID = 20
"""Different messages of a kubelet that are passed on."""


@dataclass(frozen=True)
class Source:
    """One container, whose log is read."""

    pod: str
    uid: str
    container: str
    host: str


class PodLog:
    """The log of one container.

    With ``follow``, a broken connection is replaced, and the log continues where it broke off. It ends when the
    container has ended and nothing new is left, or when its pod is gone.

    Args:
        inlet: takes the lines.
        wants: whether a line is passed on.
        was_allowed: set, also for other logs of the job, once the credentials have sufficed.
    """

    def __init__(
        self,
        api: Api,
        source: Source,
        inlet: Inlet,
        *,
        follow: bool,
        wants: Callable[[Line], bool] = lambda line: True,
        was_allowed: threading.Event | None = None,
    ) -> None:
        self.source = source
        self.inlet = inlet
        self.error: CloudtrainError | None = None
        """Why the log cannot be read at all; None if it can."""
        self.trouble: KubeError | None = None
        """Why it cannot be read now; None if it can."""
        self._api = api
        self._follow = follow
        self._wants = wants
        self._was_allowed = was_allowed or threading.Event()
        self._position = Position()
        self._parser = LineParser()
        self._read_at = time.monotonic()
        """When an answer ended, the last time."""
        self._count = 0
        """Lines that were read."""
        self._said: set[bytes] = set()
        self._complaint = b""
        """The kubelet's own message in its last answer, if it cannot read the log."""
        self._has_ended = threading.Event()
        """Whether the container has ended."""
        self._is_gone = False
        self._stopped = threading.Event()
        self._stream: LineStream | None = None
        self._silent_since: float | None = None
        """Since when a stream has said nothing; None while there is none, or its lines are passed on."""
        self._thread = threading.Thread(target=self._run, name=f"log-{source.pod}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def may_grow(self) -> bool:
        """Whether the container is not known to have ended."""
        return not self._has_ended.is_set()

    @property
    def is_over(self) -> bool:
        return self.inlet.is_closed

    def container_ended(self) -> None:
        """The container has ended: its log does not grow any more."""
        self._has_ended.set()

    def pod_gone(self) -> None:
        """The pod is gone, or another one has its name. The rest of its log is read."""
        self._is_gone = True
        self._has_ended.set()

    def drop_silence(self) -> None:
        """Request the end of an ended container's log again if its stream is silent: the node may be lost, with it."""
        stream, since = self._stream, self._silent_since
        if stream and since and self._has_ended.is_set() and time.monotonic() - since > LAST_SECONDS:
            stream.close()

    def stop(self) -> None:
        """End now. Returns immediately."""
        self._stopped.set()
        self._has_ended.set()
        self.inlet.close()
        if stream := self._stream:
            stream.close()

    def _run(self) -> None:
        try:
            if self._follow:
                self._read_to_end()
            else:
                self._read_once()
        except CloudtrainError as error:
            self.error = error
        except Exception as error:  # a thread must not end in silence
            self.error = KubeError(f"the log of pod {self.source.pod} cannot be read: {error!r}")
        finally:
            self.inlet.close()

    def _read_once(self) -> None:
        """Read the log so far; of a connection that breaks, the rest is requested again."""
        failures, began = 0, time.monotonic()
        while not self._stopped.is_set():
            try:
                self._read(follow=False)
                self._flush()
            except KubeNotFound:
                return
            except KubeError as error:
                failures += 1
                if not error.is_transient or time.monotonic() - began > LAST_SECONDS:
                    raise
                self._pause(failures, error)
            else:
                return

    def _read_to_end(self) -> None:
        failures, last_since = 0, 0.0
        last: tuple[object, ...] | None = None
        while not self._stopped.is_set():
            is_last, before = self._has_ended.is_set(), self._count
            last_since = last_since or (time.monotonic() if is_last else 0.0)
            if self._is_gone and failures:
                return  # another pod may have its name
            try:
                self._read(follow=not is_last)
                self.trouble = None
            except KubeError as error:  # also 404: a kubelet that has just started does not know its pods yet
                if isinstance(error, (KubeForbidden, KubeUnauthorized)) and not self._may_be_allowed():
                    raise
                self.trouble = error
                self.inlet.is_behind = False
            if self._count > before:
                failures, last_since = 0, 0.0
                continue
            if is_last:
                # an API server that loses a kubelet in the middle says nothing: only a second answer shows it
                unsure = None if self.trouble else self._unsure()
                is_whole = unsure is not None and unsure in (NOTHING, last)
                last = unsure
                # or the node is lost, or has removed the log
                if is_whole or self._is_gone or time.monotonic() - last_since > LAST_SECONDS:
                    self._flush()
                    return
            failures += 1
            self._pause(failures, self.trouble)

    def _read(self, *, follow: bool) -> None:
        """Read one answer to its end. Raises KubeError."""
        position, parser = self._position, LineParser()
        self._parser, self._complaint = parser, b""
        position.reconnect()
        where = (self.source.pod, self.source.container)
        with self._api.pod_log(*where, follow=follow, since=position.since, attempts=1) as stream:
            self._stream = stream
            self._was_allowed.set()
            self.inlet.put([])
            try:
                if self._stopped.is_set():
                    return
                self._silent_since = time.monotonic()
                for chunk in stream.chunks():
                    self._silent_since = None
                    self._pass_on(position.new(self._dated(parser.feed(chunk))))
                    if self._stopped.is_set():
                        return
                    self._silent_since = time.monotonic()
            finally:
                self._stream = self._silent_since = None
                self._read_at = time.monotonic()
        if self._complaint:
            raise KubeError(f"the kubelet cannot read the log of pod {self.source.pod}", is_transient=True)

    def _may_be_allowed(self) -> bool:
        """Whether a refusal may pass: an API server that has just started does not know all roles yet."""
        return self._was_allowed.is_set() and time.monotonic() - self._read_at < LAST_SECONDS

    def _unsure(self) -> tuple[object, ...]:
        """The open ends of the last answer: lines that did not come again, lines held back, a line without its end."""
        return (*self._position.unsure, self._parser.pending)

    def _flush(self) -> None:
        """Pass on the rest at the end of the log: a growing log has it in its next answer."""
        self._pass_on(self._position.rest())
        self._pass_on(self._position.new(self._dated([*self._parser.rest()])))

    def _pass_on(self, lines: Sequence[Line]) -> None:
        self._count += len(lines)
        self.inlet.put([line for line in lines if self._wants(line)])

    def _dated(self, lines: Sequence[Line]) -> Sequence[Line]:
        """``lines`` with those of the kubelet itself as lines of the log, when they come for the first time."""
        complaints = [line.text for line in lines if line.time is None]
        if not complaints:
            return lines
        self._complaint = complaints[-1]
        new = [text for text in complaints if text not in self._said][: MOST_SAID - len(self._said)]
        self._said.update(new)
        at = self._position.latest or time.time_ns()
        said = [Line(at, b"(kubelet) " + text) for text in dict.fromkeys(new)]
        return [*(line for line in lines if line.time is not None), *said]

    def _pause(self, failures: int, error: KubeError | None) -> None:
        """Longer after each failure; shorter once the container has ended, because the job may wait for this."""
        has_ended = self._has_ended.is_set()
        longest = LAST_PAUSE if has_ended else LONGEST_PAUSE
        pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), longest) * random.uniform(0.5, 1.0)
        if error and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        (self._stopped if has_ended else self._has_ended).wait(pause)
