"""Where the time of training steps goes.

The training thread either computes or has to do with communication: it waits for an operation, or copies data for
one. The second is the exposed communication; all the other communication is hidden behind the computing. On a GPU
the thread starts kernels and goes on, so that what it waits for is counted, and not what the GPU does meanwhile.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from cloudtrain.observe.timeline._writer import STEP
from cloudtrain.observe.timeline.traces import Event, Trace

Interval = tuple[float, float]
"""Beginning and end, in microseconds."""

_COMMUNICATION = ("negotiate", "operation")
_EXPOSED = ("wait", "memcpy")


@dataclass(frozen=True)
class RankStep:
    """One step of one rank. All but ``began`` are seconds."""

    rank: int
    began: float
    """Seconds since the epoch."""
    total: float
    communication: float
    """While at least one operation was under way."""
    exposed: float
    """While the training thread waited for one, or copied data for one."""

    @property
    def compute(self) -> float:
        return self.total - self.exposed


@dataclass(frozen=True)
class Step:
    """The same step of all ranks that have recorded it."""

    number: int
    """From 1; the first whole step that the ranks have recorded."""
    ranks: Sequence[RankStep]

    @property
    def slowest(self) -> RankStep:
        """The one that computed longest: the others have waited for it."""
        return max(self.ranks, key=lambda step: step.compute)

    @property
    def behind(self) -> float:
        """Seconds that the slowest rank computed longer than the median rank did."""
        return self.slowest.compute - median_low(step.compute for step in self.ranks)


def find_steps(traces: Iterable[Trace]) -> list[Step]:
    """The steps in `align`ed timelines; profiles have none.

    Ranks that have met again, as after an elastic restart, count their steps anew: those of the second time follow
    those of the first.
    """
    steps: list[Step] = []
    for meeting in _meetings(trace for trace in traces if not trace.is_profile):
        by_number: dict[int, list[RankStep]] = defaultdict(list)
        for trace in meeting:
            for number, step in _steps_of(trace):
                by_number[number].append(step)
        before = steps[-1].number if steps else 0
        for number in sorted(by_number):
            steps.append(Step(before + number, sorted(by_number[number], key=lambda step: step.rank)))
    return steps


def _meetings(traces: Iterable[Trace]) -> list[list[Trace]]:
    """Timelines that were recorded together. If a rank has several, those overlap in time that belong together."""
    ordered = sorted(traces, key=lambda trace: trace.span[0])
    if len({trace.rank for trace in ordered}) == len(ordered):
        return [ordered]
    meetings: list[list[Trace]] = []
    ended = 0.0
    for trace in ordered:
        began, end = trace.span
        if not meetings or began >= ended or trace.rank in (other.rank for other in meetings[-1]):
            meetings.append([])
            ended = 0.0
        meetings[-1].append(trace)
        ended = max(ended, end)
    return meetings


def _steps_of(trace: Trace) -> Iterable[tuple[int, RankStep]]:
    spans = [event for event in trace.events if event.get("ph") == "X"]
    steps = [event for event in spans if event["name"] == STEP]
    threads = {event["tid"] for event in steps}
    communication = _Union(event for event in spans if event["cat"] in _COMMUNICATION)
    # waits of other threads keep no step from going on
    exposed = _Union(
        event
        for event in spans
        if event["cat"] in _EXPOSED and (event["cat"] == "memcpy" or event["tid"] in threads)
    )
    for event in steps:
        began, ended = _interval(event)
        yield (
            event["args"]["step"],
            RankStep(
                trace.rank,
                (trace.start_ns / 1000 + began) / 1e6,
                (ended - began) / 1e6,
                communication.within(began, ended) / 1e6,
                exposed.within(began, ended) / 1e6,
            ),
        )


class _Union:
    """The time that is covered by at least one of many intervals."""

    def __init__(self, spans: Iterable[Event]) -> None:
        self._parts: list[list[float]] = []
        for began, ended in sorted(map(_interval, spans)):
            if self._parts and began <= self._parts[-1][1]:
                self._parts[-1][1] = max(ended, self._parts[-1][1])
            else:
                self._parts.append([began, ended])
        self._begins = [began for began, _ in self._parts]
        self._ends = [ended for _, ended in self._parts]
        lengths = (ended - began for began, ended in self._parts)
        self._lengths = list(itertools.accumulate(lengths, initial=0.0))

    def within(self, began: float, ended: float) -> float:
        """How much of the time from ``began`` to ``ended`` is covered."""
        first, last = bisect_right(self._ends, began), bisect_left(self._begins, ended)
        if first >= last:
            return 0.0
        before = max(began - self._begins[first], 0.0)
        after = max(self._ends[last - 1] - ended, 0.0)
        return self._lengths[last] - self._lengths[first] - before - after


def _interval(span: Event) -> Interval:
    return span["ts"], span["ts"] + span["dur"]
