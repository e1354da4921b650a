"""Reads the log of one container in a thread, to its end, also when connections are cut.

A kubelet sends each line after the time at which it was printed. It joins the parts in which a container runtime stores
lines of more than 16 KiB. Lines without a time are the kubelet's own: it reports there that it cannot read a log.

`Position` is where reading continues after a connection broke. The API takes a time in whole seconds: the answer begins
with lines that were read before. They are recognised by their time and their text.
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
"""In bytes: a longer one arrives in pieces, so that 200 pods cannot fill the memory."""

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
"""RFC 3339; a kubelet uses the time zone of its node."""

REMEMBERED = 256
"""The last lines, which are recognised when they are repeated. All before them are, too."""
MARGIN = 10**8
"""In nanoseconds: two threads of a container runtime write a log, so that times may run backwards by a little."""


class Line(NamedTuple):
    """A line without its end. ``time`` is in nanoseconds since the epoch; None for the kubelet's own lines."""

    time: int | None
    text: bytes


class LineParser:
    """Reads the times of the lines of one answer."""

    def __init__(self) -> None:
        self._continues: int | None = None
        """The time of a line whose beginning was too long, and has been returned."""
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
        # nearly all lines have the second of the line before, and nine digits
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
    """How far one log was read."""

    def __init__(self) -> None:
        self._read: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        """The times of the last lines, and their hashes."""
        self._expected: Counter[int] = Counter()
        """The lines of `_read` that the present answer has not repeated yet."""
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
        """The number of lines that the present answer should have repeated, and has not."""
        return self._expected.total()

    def reconnect(self) -> None:
        """The next lines are those of a new answer, from `since` on."""
        since = (self.since or 0.0) * 10**9
        self._expected = Counter(mark for time, mark in self._read if time >= since)
        self._read_until = self._read[0][0] if len(self._read) == REMEMBERED else 0

    def new(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that have not been read before. Lines of the kubelet itself do not count."""
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
"""Seconds between two attempts to read a log that cannot be read."""
LAST_PAUSE = 2.0
"""The same for a container that has ended."""
LAST_SECONDS = 30.0
"""For this long, the end of the log of a container that has ended is requested again if it cannot be read."""

HELD_BYTES = 1 << 17
"""The maximum size of the lines of one log in memory. Twice as many may be in the merge."""
LINE_COST = 200
"""Bytes that a line takes in memory, in addition to its text."""

QUIET = 0.1
"""Seconds without new lines after which no other log waits for this one."""
FIRST_QUIET = 0.5
"""The same for a log that was never quiet: it may be slow to deliver what was printed before."""
LONGEST_WAIT = 5.0
"""The most seconds that a round of the merge waits for one log: the clock of its node may be slow."""

MOST_COMPLAINTS = 20
"""Different messages of a kubelet that are passed on."""


class Printed(NamedTuple):
    """A line of the merged log. ``time`` is in nanoseconds since the epoch; those of a log never run backwards."""

    time: int
    pod: Pod
    text: bytes


class PodLog:
    """The log of one container, as a `LogStream` of the merge.

    With ``follow``, a broken connection is replaced, and the log continues where it broke off. It ends when the
    container has ended and nothing new is left, or when its pod is gone.

    Args:
        news: set when there are new lines, or the log is over.
        wants: whether a line is passed on.
        was_allowed: set, also for other logs of the job, once the credentials have sufficed.
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
        """The unfinished line at the end of the last answer."""
        self._read_at = time.monotonic()
        """When an answer ended, the last time."""
        self._count = 0
        """Lines that were read."""
        self._complaints: set[bytes] = set()
        self._complaint = b""
        """The kubelet's own message in its last answer, if it cannot read the log."""
        self._has_ended = threading.Event()
        """Whether the container has ended."""
        self._is_gone = False
        self._stopped = threading.Event()
        self._stream: LineStream | None = None
        self._silent_since: float | None = None
        """Since when a stream is silent; None while there is none, or its lines are passed on."""
        self._changed = threading.Condition()
        self._is_closed = False
        """Whether no more lines follow those that are held."""
        self._held: deque[Printed] = deque()
        self._size = 0
        """Of the lines that are held, in bytes."""
        self._latest = 0
        self._was_quiet = False
        self._heard_at = time.monotonic()
        self._round = 0.0
        self._waited = 0.0
        """The present round of the merge, and the seconds that it has waited for this log."""
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
        """Whether the log is read to its end, and all its lines are in the merge. An error that ended it is not."""
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
            # a later line waits for the next round; where a clock is ahead, it would wait for long
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
        self._close()
        if stream := self._stream:
            stream.close()

    def _fell_quiet(self) -> bool:
        """Whether no other log waits for this one."""
        quiet = QUIET if self._was_quiet else FIRST_QUIET
        is_quiet = bool(self._trouble) or time.monotonic() - self._heard_at >= quiet
        self._was_quiet = self._was_quiet or is_quiet
        return is_quiet or self._waited > LONGEST_WAIT

    # the thread that reads

    def _run(self) -> None:
        try:
            if self._follow:
                self._read_to_end()
            else:
                self._read_once()
        except CloudtrainError as error:
            self._error = error
        except Exception as error:  # a thread must not end in silence
            self._error = KubeError(f"the log of pod {self.pod.name} cannot be read: {error!r}")
        finally:
            self._close()

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._news.set()

    def _read_once(self) -> None:
        """Read the log so far; of a connection that breaks, the rest is requested again."""
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
                # also 404: a kubelet that has just started has not synced its pods yet
                if isinstance(error, (KubeForbidden, KubeUnauthorized)) and not self._may_be_allowed():
                    raise
                self._trouble = error
            if self._count > before:
                failures, last_since = 0, 0.0
                continue
            if is_last:
                # an API server that loses a kubelet in the middle ends the answer: only a second one shows it
                ends = None if self._trouble else (self._position.missing, self._rest)
                is_whole = ends is not None and ends in ((0, b""), last)
                last = ends
                # or the node is lost, or has removed the log
                if is_whole or self._is_gone or time.monotonic() - last_since > LAST_SECONDS:
                    self._pass_on_rest()
                    return
            failures += 1
            self._pause(failures, self._trouble)

    def _read(self, *, follow: bool) -> None:
        """Read one answer to its end. Raises KubeError."""
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
        """Whether a refusal may pass: an API server that has just started does not know all roles yet."""
        return self._was_allowed.is_set() and time.monotonic() - self._read_at < LAST_SECONDS

    def _pass_on(self, lines: Sequence[Line]) -> None:
        """Hold new lines for the merge. Waits while the reader of the merged log is slower than this one."""
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
        """The lines of the kubelet itself as lines of the log, when they arrive for the first time.

        They are not part of the position: the next request is for the container's lines since its own last one.
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
        """Longer after each failure; shorter once the container has ended, because the job may wait for this."""
        has_ended = self._has_ended.is_set()
        pause = backoff(failures, FIRST_PAUSE, LAST_PAUSE if has_ended else LONGEST_PAUSE)
        if error and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        (self._stopped if has_ended else self._has_ended).wait(pause)
