"""Reads the log of one container to its end, in a thread, even if connections are cut.

A kubelet prefixes each line with the time at which it was printed. It joins the parts in which a container runtime
stores lines of more than 16 KiB. Lines without a time are the kubelet's own, for example that it cannot read a log.

`Position` is where reading continues after a connection broke. The API accepts a time in whole seconds only, so the
response begins with lines that were read before. They are recognised by their time and text.
"""

from __future__ import annotations

import calendar
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeUnauthorized,
)
from cloudtrain.platforms.kubernetes.api.transport import LineStream, backoff
from cloudtrain.platforms.kubernetes.life.pods import Pod

LONGEST_LINE = 1 << 20
"""In bytes. Longer lines arrive in pieces, so that 200 pods cannot exhaust the memory."""

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
"""RFC 3339; a kubelet uses the time zone of its node."""

REMEMBERED = 256
"""The number of last lines that are recognised when they are repeated. Earlier lines are recognised by their time."""
MARGIN = 10**8
"""In nanoseconds. Two threads of a container runtime write a log, so times may run backwards slightly."""


class Line(NamedTuple):
    """A line without its end. ``time`` is in nanoseconds since the epoch; None for the kubelet's own lines."""

    time: int | None
    text: bytes


class LineParser:
    """Parses the times of the lines in one response."""

    def __init__(self) -> None:
        self._continues: int | None = None
        """The time of a long line whose first pieces have been returned; None if there is no such line."""
        self._second = (b"", 0)

    def lines(self, given: Iterable[bytes]) -> list[Line]:
        """Lines as `LineStream.batches` yields them, without their ends."""
        found = []
        for line in given:
            text = line.removesuffix(b"\n")
            one = self._parse(text) if self._continues is None else Line(self._continues, text)
            self._continues = one.time if text is line else None
            found.append(one)
        return found

    def _parse(self, line: bytes) -> Line:
        # nearly all lines have nine digits, and the same second as the line before
        if line[:19] == self._second[0] and line[29:31] == b"Z " and line[20:29].isdigit():
            return Line(self._second[1] + int(line[20:29]), line[31:])
        match = _STAMP.match(line)
        if match is None and (line.endswith(b"Z") or line[-6:-5] in (b"+", b"-")):
            match = _STAMP.match(line + b" ")  # an empty line may lack the space
        return Line(None, line) if match is None else self._stamped(match, line)

    def _stamped(self, match: re.Match[bytes], line: bytes) -> Line:
        *numbers, fraction, zone = match.groups()
        try:
            second = calendar.timegm((*map(int, numbers), 0, 0, 0)) * 10**9
        except ValueError:
            return Line(None, line)
        if zone == b"Z":
            self._second = (line[:19], second)
        else:
            sign = -1 if zone[:1] == b"-" else 1
            second -= sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60) * 10**9
        return Line(second + int((fraction or b"0").ljust(9, b"0")), line[match.end() :])


class Position:
    """The position up to which one log was read."""

    def __init__(self) -> None:
        self._read: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        """The times of the last lines, and their hashes."""
        self._expected: Counter[int] = Counter()
        """The lines of `_read` that the current response has not repeated yet."""
        self._read_until = 0
        """Lines of this time or earlier were read before."""
        self.latest = 0
        """The time of the latest line, in nanoseconds since the epoch; 0 before the first line."""

    @property
    def since(self) -> float | None:
        """The time to request, in whole seconds since the epoch; None for the whole log."""
        return float((self.latest - MARGIN) // 10**9) if self._read else None

    @property
    def missing(self) -> int:
        """The number of lines that the current response should have repeated, but has not."""
        return self._expected.total()

    def reconnect(self) -> None:
        """Prepare for the lines of a new response, which starts at `since`."""
        since = (self.since or 0.0) * 10**9
        self._expected = Counter(mark for time, mark in self._read if time >= since)
        self._read_until = self._read[0][0] if len(self._read) == REMEMBERED else 0

    def new(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that have not been read before, without the kubelet's own."""
        found = [line for line in lines if line.time is not None and line.time > self._read_until]
        if self._expected:
            found = [line for line in found if not self._is_repeated(hash(line))]
        self._read.extend((line.time or 0, hash(line)) for line in found[-REMEMBERED:])
        self.latest = max(self.latest, max((line.time or 0 for line in found), default=0))
        return found

    def _is_repeated(self, mark: int) -> bool:
        if mark not in self._expected:
            return False
        self._expected[mark] -= 1
        if not self._expected[mark]:
            del self._expected[mark]
        return True


FIRST_PAUSE = 0.25
LONGEST_PAUSE = 15.0
"""The maximum seconds between two attempts to read a log that cannot be read."""
LAST_PAUSE = 2.0
"""The maximum seconds between them for a container that has ended."""
LAST_SECONDS = 30.0
"""How long the end of an ended container's log is requested repeatedly if it cannot be read."""

HELD_BYTES = 1 << 17
"""The maximum size of one log's lines in memory. The merge may hold twice as many."""
LINE_COST = 200
"""The bytes of memory for a line in addition to its text."""

QUIET = 0.1
"""Seconds without new lines after which the merge stops waiting for this log."""
FIRST_QUIET = 0.5
"""Seconds for a log that was never quiet: it may be slow to deliver older lines."""
LONGEST_WAIT = 5.0
"""The maximum seconds that a round of the merge waits for one log: the clock of its node may be slow."""

MOST_COMPLAINTS = 20
"""The maximum number of different messages of a kubelet to pass on."""


class Printed(NamedTuple):
    """A line of the merged log. ``time`` is in nanoseconds since the epoch; the times of a log never run backwards."""

    time: int
    pod: Pod
    text: bytes


class PodLog:
    """The log of one container, as a `LogStream` of the merge.

    With ``follow``, a broken connection is replaced, and the log continues at the same line. It ends when the container
    has ended and all its lines have been read, or when its pod no longer exists.

    Args:
        news: set when there are new lines, or the log is over.
        wants: returns whether to pass a line on.
        was_allowed: set once the credentials have sufficed for this log, or for another log of the job.
    """

    def __init__(
        self,
        api: Api,
        pod: Pod,
        news: threading.Event,
        *,
        follow: bool,
        wants: Callable[[Line], bool],
        was_allowed: threading.Event,
    ) -> None:
        self.pod = pod
        self.name = f"{pod.uid}/{pod.container}"
        self.order = (pod.host, 0, self.name)
        self._api = api
        self._news = news
        self._follow = follow
        self._wants = wants
        self._was_allowed = was_allowed
        self._error: CloudtrainError | None = None
        """Why the log cannot be read at all; None if it can."""
        self._trouble: KubeError | None = None
        """Why it cannot be read now; None if it can."""
        self._position = Position()
        self._parser = LineParser()
        self._rest = b""
        """The unfinished line at the end of the last response."""
        self._read_at = time.monotonic()
        """When the last response ended."""
        self._count = 0
        """The number of lines read."""
        self._complaints: set[bytes] = set()
        self._complaint = b""
        """The kubelet's own message in its last response, if it cannot read the log."""
        self._has_ended = threading.Event()
        """Whether the container has ended."""
        self._is_gone = False
        self._stopped = threading.Event()
        self._stream: LineStream | None = None
        self._silent_since: float | None = None
        """When the stream became silent; None while there is no stream, or its lines are being passed on."""
        self._changed = threading.Condition()
        self._is_closed = False
        """Whether no lines follow those that are held."""
        self._held: deque[Printed] = deque()
        self._size = 0
        """The size of the held lines, in bytes."""
        self._latest = 0
        self._was_quiet = False
        self._heard_at = time.monotonic()
        self._round = 0.0
        self._waited = 0.0
        """The current round of the merge, and the seconds that it has waited for this log."""
        threading.Thread(target=self._run, name=f"log-{pod.name}", daemon=True).start()

    # for the merge, and the reader of all logs

    @property
    def may_grow(self) -> bool:
        """Whether the container is not known to have ended."""
        return not self._has_ended.is_set()

    @property
    def holds(self) -> bool:
        return bool(self._held)

    @property
    def is_over(self) -> bool:
        """Whether the log was read to its end without an error, and the merge has all its lines."""
        return self._is_closed and not self._held and self._error is None

    def next_page(self, limit: int, until: float, *, is_partial: bool) -> tuple[list[Printed], bool]:
        """See `LogStream.next_page`. Raises CloudtrainError if the log cannot be read."""
        with self._changed:
            if until != self._round:
                self._round, self._waited = until, 0.0
            while not self._held and not self._is_closed and not (is_partial and self._fell_quiet()):
                began = time.monotonic()
                self._changed.wait(QUIET)
                self._waited += time.monotonic() - began
            page: list[Printed] = []
            end, now = int(until * 10**6), time.time_ns()
            # a later line waits for the next round, unless its clock is ahead: it would wait for long
            while (held := self._held) and len(page) < limit:
                if is_partial and end < held[0].time <= now:
                    break
                page.append(held.popleft())
                self._size -= len(page[-1].text) + LINE_COST
            self._changed.notify_all()
            if self._error and not page and not held:
                raise self._error
            return page, not page or (is_partial and self._waited > LONGEST_WAIT)

    def container_ended(self) -> None:
        """Record that the container has ended, so that its log does not grow any longer."""
        self._has_ended.set()

    def pod_gone(self) -> None:
        """Record that the pod no longer exists, or that another one has its name. The rest of its log is read."""
        self._is_gone = True
        self._has_ended.set()

    def drop_silence(self) -> None:
        """Close a silent stream of an ended container, to request the rest of its log again: the node may be lost."""
        stream, since = self._stream, self._silent_since
        if stream and since and self._has_ended.is_set() and time.monotonic() - since > LAST_SECONDS:
            stream.close()

    def stop(self) -> None:
        """Stop reading. Returns immediately."""
        self._stopped.set()
        self._has_ended.set()
        self._close()
        if stream := self._stream:
            stream.close()

    def _fell_quiet(self) -> bool:
        """Whether the merge need not wait for this log, because it has no new lines."""
        quiet = QUIET if self._was_quiet else FIRST_QUIET
        is_quiet = bool(self._trouble) or time.monotonic() - self._heard_at >= quiet
        self._was_quiet = self._was_quiet or is_quiet
        return is_quiet or self._waited > LONGEST_WAIT

    # in the thread that reads the log

    def _run(self) -> None:
        try:
            if self._follow:
                self._read_to_end()
            else:
                self._read_once()
        except CloudtrainError as error:
            self._error = error
        except Exception as error:  # a thread must not end silently
            self._error = KubeError(f"the log of pod {self.pod.name} cannot be read: {error!r}")
        finally:
            self._close()

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._news.set()

    def _read_once(self) -> None:
        """Read the log so far. If the connection breaks, the rest is requested again."""
        failures, began = 0, time.monotonic()
        while not self._stopped.is_set():
            try:
                self._read(follow=False)
                self._pass_on_rest()
                return
            except KubeNotFound:
                return
            except KubeError as error:
                if not error.is_transient or time.monotonic() - began > LAST_SECONDS:
                    raise
                failures += 1
                self._pause(failures, error)

    def _read_to_end(self) -> None:
        failures, last_since = 0, 0.0
        last: tuple[int, bytes] | None = None
        while not self._stopped.is_set():
            is_last, before = self._has_ended.is_set(), self._count
            last_since = last_since or (time.monotonic() if is_last else 0.0)
            if self._is_gone and failures:
                return  # another pod may have its name
            try:
                self._read(follow=not is_last)
                self._trouble = None
            except KubeError as error:
                # including 404: a kubelet that has just started has not synced its pods yet
                if isinstance(error, (KubeForbidden, KubeUnauthorized)) and not self._may_be_allowed():
                    raise
                self._trouble = error
            if self._count > before:
                failures, last_since = 0, 0.0
                continue
            if is_last:
                # an API server that loses a kubelet ends its response early: only a second response shows that
                ends = None if self._trouble else (self._position.missing, self._rest)
                is_whole = ends is not None and ends in ((0, b""), last)
                last = ends
                # give up after a while: the node may be lost, or may have removed the log
                if is_whole or self._is_gone or time.monotonic() - last_since > LAST_SECONDS:
                    self._pass_on_rest()
                    return
            failures += 1
            self._pause(failures, self._trouble)

    def _read(self, *, follow: bool) -> None:
        """Read one response to its end. Raises KubeError."""
        self._parser, self._rest, self._complaint = LineParser(), b"", b""
        self._position.reconnect()
        where = (self.pod.name, self.pod.container)
        with self._api.pod_log(*where, follow=follow, since=self._position.since, attempts=1) as stream:
            self._stream = stream
            self._was_allowed.set()
            self._heard_at = time.monotonic()
            try:
                if self._stopped.is_set():
                    return
                self._silent_since = time.monotonic()
                for lines in stream.batches(LONGEST_LINE):
                    self._silent_since = None
                    self._pass_on(self._parser.lines(lines))
                    if self._stopped.is_set():
                        return
                    self._silent_since = time.monotonic()
            finally:
                self._stream, self._silent_since, self._rest = None, None, stream.rest
                self._read_at = time.monotonic()
        if self._complaint:
            raise KubeError(f"the kubelet cannot read the log of pod {self.pod.name}", is_transient=True)

    def _may_be_allowed(self) -> bool:
        """Whether a denial may be temporary: an API server that has just started has not loaded all roles yet."""
        return self._was_allowed.is_set() and time.monotonic() - self._read_at < LAST_SECONDS

    def _pass_on(self, lines: Sequence[Line]) -> None:
        """Hold new lines for the merge. Waits if the merged log is read more slowly than this one."""
        new = self._position.new([line for line in lines if line.time is not None])
        new += self._complaints_of(lines)
        self._count += len(new)
        with self._changed:
            self._heard_at = time.monotonic()
            for line in filter(self._wants, new):
                self._latest = max(self._latest, line.time or 0)
                self._held.append(Printed(self._latest, self.pod, line.text))
                self._size += len(line.text) + LINE_COST
            self._changed.notify_all()
        if new:
            self._news.set()
        with self._changed:
            self._changed.wait_for(lambda: self._size <= HELD_BYTES or self._is_closed)

    def _pass_on_rest(self) -> None:
        self._pass_on(self._parser.lines([self._rest] if self._rest else []))

    def _complaints_of(self, lines: Sequence[Line]) -> list[Line]:
        """The kubelet's own lines, as lines of the log. Each is returned once.

        They do not change the position: the next request starts at the last line of the container itself.
        """
        complaints = [line.text for line in lines if line.time is None]
        if not complaints:
            return []
        self._complaint = complaints[-1]
        new = [text for text in complaints if text not in self._complaints]
        new = new[: MOST_COMPLAINTS - len(self._complaints)]
        self._complaints.update(new)
        at = self._position.latest or time.time_ns()
        return [Line(at, b"(kubelet) " + text) for text in dict.fromkeys(new)]

    def _pause(self, failures: int, error: KubeError | None) -> None:
        """Pause, for longer after each failure, but briefly once the container has ended: the job may wait for this."""
        has_ended = self._has_ended.is_set()
        pause = backoff(failures, FIRST_PAUSE, LAST_PAUSE if has_ended else LONGEST_PAUSE)
        if error and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        (self._stopped if has_ended else self._has_ended).wait(pause)
