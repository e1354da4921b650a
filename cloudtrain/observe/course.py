"""The course of a job on a time axis: its attempts, the phases of each, and its ranks. Its size is bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Callable

from cloudtrain._dataclass import dataclass

MOST_SPANS = 1000
MOST_ATTEMPTS = 200
MOST_HOSTS = 4096
MOST_RANKS = 1024
"""The most ranks of one host."""
LONGEST_TEXT = 200
"""Characters of a phase or a reason, which are limited because a script may forge events."""


@dataclass
class Attempt:
    """One attempt of a job. Times are in seconds since the epoch, on the clock of the job."""

    number: int
    began: float
    ended: float | None = None
    """None while it runs, or if its end was not recorded."""
    reason: str = ""
    """Why another attempt followed."""


@dataclass
class Span:
    """A phase in one attempt, from its start on the first host to its end on the last one."""

    attempt: int
    phase: str
    began: float
    ended: float | None = None
    """None while a host is in it, or if a host was lost in it."""
    hosts: int = 1
    """How many hosts are in it."""


@dataclass
class HostRanks:
    """The ranks of one host in the last attempt."""

    ranks: list[int] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    """Ranks that have ended, each with its exit code."""
    step: int | None = None
    """The last step that one of them reported."""


@dataclass
class Course:
    """Collects the events of a job, added in order. Of very many attempts or phases, the middle ones are left out."""

    attempts: list[Attempt] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    hosts: dict[str, HostRanks] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        """Add one of `OF_THE_COURSE`, or a metric with a step.

        Raises KeyError, TypeError or ValueError if it lacks a field.
        """
        OF_THE_COURSE.get(event["event"], Course._step)(self, event)

    def _attempt(self, event: Mapping[str, Any]) -> None:
        time = _time(event)
        number = event.get("attempt", self.attempts[-1].number + 1 if self.attempts else 0)
        self._end(time)
        self.hosts.clear()
        self.attempts.append(Attempt(_integer(number), time))
        del self.attempts[1 : -MOST_ATTEMPTS + 1]

    def _retry(self, event: Mapping[str, Any]) -> None:
        self._end(_time(event))
        if self.attempts:
            self.attempts[-1].reason = str(event.get("failure", ""))[:LONGEST_TEXT]

    def _job(self, event: Mapping[str, Any]) -> None:
        self._end(_time(event))

    def _end(self, time: float) -> None:
        """Record the end of the current attempt, unless it has ended before."""
        if self.attempts and self.attempts[-1].ended is None:
            self.attempts[-1].ended = time
        for span in self.spans:
            if span.ended is None:
                span.ended = max(time, span.began)

    def _phase(self, event: Mapping[str, Any]) -> None:
        time, phase = _time(event), event["phase"][:LONGEST_TEXT]
        attempt = self.attempts[-1].number if self.attempts else 0
        span = next(
            (one for one in reversed(self.spans) if one.attempt == attempt and one.phase == phase), None
        )
        if event["state"] == "began":
            if span is None:
                self.spans.append(Span(attempt, phase, time))
                del self.spans[1 : -MOST_SPANS + 1]
            else:
                span.began, span.ended = min(span.began, time), None
                span.hosts += 1
        elif span is not None and span.hosts:
            span.hosts -= 1
            span.ended = None if span.hosts else max(time, span.began)

    def _launch(self, event: Mapping[str, Any]) -> None:
        ranks = event.get("ranks")
        if isinstance(ranks, list) and len(ranks) <= MOST_RANKS:
            self._host(event).ranks = sorted(map(_integer, ranks))

    def _rank_ended(self, event: Mapping[str, Any]) -> None:
        host = self._host(event)
        if len(host.ended) < MOST_RANKS:
            host.ended.append((_integer(event["rank"]), _integer(event["exit_code"])))

    def _step(self, event: Mapping[str, Any]) -> None:
        if event.get("step") is not None:
            self._host(event).step = event["step"]

    def _host(self, event: Mapping[str, Any]) -> HostRanks:
        """The host that reports ``event``. Raises ValueError if there are too many hosts."""
        name = event["source"]
        if name not in self.hosts and len(self.hosts) == MOST_HOSTS:
            raise ValueError("there are too many hosts")
        return self.hosts.setdefault(name, HostRanks())

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Course:
        """The inverse of `to_dict`. Raises TypeError, ValueError or KeyError."""
        hosts = {name: HostRanks(**values) for name, values in data["hosts"].items()}
        for host in hosts.values():
            host.ended = [(rank, code) for rank, code in host.ended]
        return cls(
            [Attempt(**values) for values in data["attempts"]],
            [Span(**values) for values in data["spans"]],
            hosts,
        )


OF_THE_COURSE: dict[str, Callable[[Course, Mapping[str, Any]], None]] = {
    "attempt": Course._attempt,
    "retry": Course._retry,
    "job": Course._job,
    "phase": Course._phase,
    "launch": Course._launch,
    "rank-ended": Course._rank_ended,
    "step": Course._step,
}
"""The reader of each kind of event."""


def _time(event: Mapping[str, Any]) -> float:
    time = event["time"]
    if isinstance(time, bool) or not isinstance(time, (int, float)):
        raise TypeError
    return float(time)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    return value
