"""Pictures with axes: the course of a metric, with all of its spikes, and the phases of a job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from cloudtrain._display.markup import Html, element, shortened
from cloudtrain._display.steps import span
from cloudtrain._display.view import JobView
from cloudtrain.observe.metric_series import Point, thinned
from cloudtrain.watch.report.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    bottom,
    in_unit,
    left,
    picture,
    text,
)

COLOURS = 8
LONGEST_NAME = 80
LONGEST_KEY = 24


Moment = tuple[float, float, float, float]
"""A position on the axis, a value, and the smallest and the largest value of any rank."""


@dataclass(frozen=True)
class Curve:
    """The values of a metric in one job, by step or by seconds since the job started."""

    label: str
    points: Sequence[Point]
    start: float
    """The start of the job, in seconds since the epoch."""

    @property
    def has_steps(self) -> bool:
        return all(point.step is not None for point in self.points)

    def moments(self, *, by_step: bool, parts: int) -> list[Moment]:
        """The points to draw, sorted, because a clock may have been set back."""
        found = []
        for point in thinned(self.points, parts):
            at = float(point.step or 0) if by_step else point.time - self.start
            low = point.value if point.min is None else min(point.min, point.value)
            high = point.value if point.max is None else max(point.max, point.value)
            found.append((at, point.value, low, high))
        return found if by_step else sorted(found, key=lambda moment: moment[0])


def plot(name: str, curves: Sequence[Curve], parts: int) -> Html:
    """The plot of one metric of one or more jobs; empty if it has no finite value.

    Args:
        parts: the number of parts of the axis; in each, only the smallest and the largest values are drawn.
    """
    by_step = all(curve.has_steps for curve in curves)
    courses = [curve.moments(by_step=by_step, parts=parts) for curve in curves]
    finite = [one for course in courses for one in course if all(map(math.isfinite, one))]
    if not finite:
        return Html("")
    across = Axis(min(finite)[0], max(finite)[0])
    up = Axis(min(one[2] for one in finite), max(one[3] for one in finite))
    unit, shown = ("step", across) if by_step else in_unit(across)
    lines: list[Html] = []
    for number, course in enumerate(courses):
        groups = groupby(course, key=lambda one: all(map(math.isfinite, one)))
        runs = [[*run] for is_finite, run in groups if is_finite]
        colour = f"c{number % COLOURS}"
        if len(courses) == 1:
            lines += [_spread(run, across, up, colour) for run in runs]
        lines += [_line(run, across, up, colour) for run in runs]
    title = unit if by_step else f"time since the start ({unit})"
    keys = _keys(curves) if len(curves) > 1 else []
    return picture(
        describe(name, curves), *left(up), *bottom(shown, title), *lines,
        text(LEFT, 14, shortened(name, LONGEST_NAME), class_="name"), *keys,
    )  # fmt: skip


def describe(name: str, curves: Sequence[Curve]) -> str:
    """The text alternative: the first, last, lowest and highest value of each curve."""
    parts = []
    for curve in curves:
        finite = [point.value for point in curve.points if math.isfinite(point.value)]
        if finite:
            course = f"from {finite[0]:g} to {finite[-1]:g}, lowest {min(finite):g}, highest {max(finite):g}"
            parts.append(f"{shortened(curve.label, LONGEST_NAME)}: {course}" if len(curves) > 1 else course)
    return f"{shortened(name, LONGEST_NAME)}: {'; '.join(parts)}"


def _line(run: Sequence[Moment], across: Axis, up: Axis, colour: str) -> Html:
    places = [_place(at, value, across, up) for at, value, _, _ in run]
    if len(places) == 1:
        (x, y), *_ = places
        return element("circle", cx=f"{x:g}", cy=f"{y:g}", r=2.5, class_=colour)
    return element("polyline", points=_joined(places), class_=f"curve {colour}")


def _spread(run: Sequence[Moment], across: Axis, up: Axis, colour: str) -> Html:
    """Draw the area between the smallest and the largest value of any rank; nothing if only one rank logged."""
    if len(run) < 2 or all(low == high for _, _, low, high in run):
        return Html("")
    above = [_place(at, high, across, up) for at, _, _, high in run]
    below = [_place(at, low, across, up) for at, _, low, _ in reversed(run)]
    return element("polygon", points=_joined([*above, *below]), class_=f"spread {colour}")


def _place(at: float, value: float, across: Axis, up: Axis) -> tuple[float, float]:
    return across.place(at, LEFT, WIDTH - RIGHT), up.place(value, HEIGHT - BOTTOM, TOP)


def _joined(places: Sequence[tuple[float, float]]) -> Html:
    return Html(" ".join(f"{x:g},{y:g}" for x, y in places))


def _keys(curves: Sequence[Curve]) -> Iterator[Html]:
    """Draw the legend: the names of the jobs with their colours, aligned to the right."""
    width = min(150.0, (WIDTH - 2 * LEFT) / len(curves))
    for number, curve in enumerate(curves):
        x = WIDTH - RIGHT - (len(curves) - number) * width
        yield element("rect", x=f"{x:g}", y=6, width=10, height=10, class_=f"c{number % COLOURS}")
        yield text(x + 14, 15, shortened(curve.label, LONGEST_KEY))


MOST_ROWS = 24
"""The most phases in a picture."""
ROW = 20
NAMES = 96
"""Pixels to the left of the axis of phases, for their names."""
LONGEST_PHASE = len("requirements")
"""Characters that fit into `NAMES`."""

Bar = tuple[str, float, float]
"""A name, a start and an end, in seconds since the submission."""


def bars(view: JobView) -> list[Bar]:
    """The phases of all attempts, each from its first host to its last; for a job without events, its states."""
    start, now = view.description.submitted_at, view.now
    found = [(one.phase, one.began, now if one.ended is None else one.ended) for one in view.spans]
    if not found:
        states = [*((state.name, state.time) for state in view.states), ("", now)]
        found = [(name, at, until) for (name, at), (_, until) in pairwise(states)]
    return [
        (name, max(at - start, 0.0), until - start) for name, at, until in found if until > max(at, start)
    ]


def draw(view: JobView) -> Html:
    """Draw the phases, with a line at each restart; empty if there are none."""
    shown = bars(view)
    if not shown:
        return Html("")
    names = list(dict.fromkeys(name for name, _, _ in shown))[:MOST_ROWS]
    rows = {name: TOP + number * ROW for number, name in enumerate(names)}
    height = TOP + len(rows) * ROW + BOTTOM
    seconds = Axis(0.0, max(until for _, _, until in shown))
    unit, across = in_unit(seconds)
    restarts = [attempt.began - view.description.submitted_at for attempt in view.attempts[1:]]
    return picture(
        f"{len(rows)} phases over {span(seconds.high)}",
        *bottom(across, f"time since the submission ({unit})", height, NAMES),
        *(text(NAMES - 6, y + 14, shortened(name, LONGEST_PHASE), "end") for name, y in rows.items()),
        *(_bar(one, seconds, rows[one[0]]) for one in shown if one[0] in rows),
        *(mark for at in restarts if 0 <= at <= seconds.high for mark in _restart(seconds, at, height)),
        height=height,
    )


def _bar(one: Bar, seconds: Axis, y: float) -> Html:
    name, at, until = one
    begin, end = (seconds.place(edge, NAMES, WIDTH - RIGHT) for edge in (at, until))
    return element(
        "rect",
        element("title", f"{shortened(name, 80)} {span(until - at)}"),
        x=f"{begin:g}", y=y + 3, width=f"{max(end - begin, 1):g}", height=ROW - 6, class_="c0",
    )  # fmt: skip


def _restart(seconds: Axis, at: float, height: float) -> Iterator[Html]:
    x = seconds.place(at, NAMES, WIDTH - RIGHT)
    yield element("line", x1=f"{x:g}", x2=f"{x:g}", y1=TOP - 6, y2=height - BOTTOM, class_="c7")
    yield text(x, TOP - 8, "restart", "middle")


def as_text(view: JobView) -> str:
    """The phases as lines of text."""
    return "\n".join(f"{at:10.1f} s  {name}  {span(until - at)}" for name, at, until in bars(view))
