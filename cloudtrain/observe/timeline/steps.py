"""How the time of training steps is spent.

The training thread either computes or is busy with communication: it waits for an operation, or copies data for one.
That is the exposed communication; all other communication is hidden behind computation. With a GPU, the thread launches
kernels asynchronously, so these figures include only the time that the thread waits, not the time that the GPU takes.
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
"""Begin and end, in microseconds."""

_COMMUNICATION = ("negotiate", "operation")
_EXPOSED = ("wait", "memcpy")


@dataclass(frozen=True)
class RankStep:
    """One step of one rank. All times but ``began`` are durations in seconds."""

    rank: int
    began: float
    """Seconds since the epoch."""
    total: float
    communication: float
    """The time while at least one operation was in progress."""
    exposed: float
    """The time while the training thread waited for an operation or copied data for one."""

    @property
    def compute(self) -> float:
        return self.total - self.exposed


@dataclass(frozen=True)
class Step:
    """One step of all ranks that recorded it."""

    number: int
    """Counts from 1, the first complete step of the recording."""
    ranks: Sequence[RankStep]

    @property
    def slowest(self) -> RankStep:
        """The rank that computed longest: the others waited for it."""
        return max(self.ranks, key=lambda step: step.compute)

    @property
    def behind(self) -> float:
        """Seconds by which the slowest rank computed longer than the median rank."""
        return self.slowest.compute - median_low(step.compute for step in self.ranks)


def find_steps(traces: Iterable[Trace]) -> list[Step]:
    """The steps in `align`ed timelines. Profiles do not contain steps.

    After an elastic restart, ranks count their steps from 1 again; the result numbers them consecutively.
    """
    steps: list[Step] = []
    for recording in _recordings(trace for trace in traces if not trace.is_profile):
        by_number: dict[int, list[RankStep]] = defaultdict(list)
        for trace in recording:
            for number, step in _steps_of(trace):
                by_number[number].append(step)
        before = steps[-1].number if steps else 0
        for number in sorted(by_number):
            steps.append(Step(before + number, sorted(by_number[number], key=lambda step: step.rank)))
    return steps


def _recordings(traces: Iterable[Trace]) -> list[list[Trace]]:
    """Groups of timelines that were recorded together, between two restarts: those that overlap in time."""
    ordered = sorted(traces, key=lambda trace: trace.span[0])
    if len({trace.rank for trace in ordered}) == len(ordered):
        return [ordered]
    recordings: list[list[Trace]] = []
    ended = 0.0
    for trace in ordered:
        began, end = trace.span
        if not recordings or began >= ended or trace.rank in (other.rank for other in recordings[-1]):
            recordings.append([])
            ended = 0.0
        recordings[-1].append(trace)
        ended = max(ended, end)
    return recordings


def _steps_of(trace: Trace) -> Iterable[tuple[int, RankStep]]:
    spans = [event for event in trace.events if event.get("ph") == "X"]
    steps = [event for event in spans if event["name"] == STEP]
    threads = {event["tid"] for event in steps}
    communication = _Union(event for event in spans if event["cat"] in _COMMUNICATION)
    # waits of other threads do not delay the step
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
    """The union of intervals."""

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
        """The length of the union between ``began`` and ``ended``."""
        first, last = bisect_right(self._ends, began), bisect_left(self._begins, ended)
        if first >= last:
            return 0.0
        before = max(began - self._begins[first], 0.0)
        after = max(self._ends[last - 1] - ended, 0.0)
        return self._lengths[last] - self._lengths[first] - before - after


def _interval(span: Event) -> Interval:
    return span["ts"], span["ts"] + span["dur"]
