"""The phases of a job on a time axis, or else its states: a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from cloudtrain._display.markup import Html, element, shortened
from cloudtrain._display.steps import span
from cloudtrain._display.view import JobView
from cloudtrain.watch.report.axes import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    bottom,
    in_unit,
    picture,
    text,
)

MOST_ROWS = 24
"""The most phases that are drawn."""
ROW = 20
LONGEST_NAME = 11

Bar = tuple[str, float, float]
"""A name, and from when to when, in seconds since the submission."""


def bars(view: JobView) -> list[Bar]:
    """The phases of all attempts, from the first host to the last one; the states of a job without events."""
    start, now = view.description.submitted_at, view.now
    found = [(one.phase, one.began, now if one.ended is None else one.ended) for one in view.spans]
    if not found:
        states = [*((state.name, state.time) for state in view.states), ("", now)]
        found = [(name, at, until) for (name, at), (_, until) in pairwise(states)]
    return [
        (name, max(at - start, 0.0), until - start) for name, at, until in found if until > max(at, start)
    ]


def draw(view: JobView) -> Html:
    """The phases as a picture, with a line where each attempt after the first began; empty if there are none."""
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
        *bottom(across, f"time since the submission ({unit})", height),
        *(text(LEFT - 6, y + 14, shortened(name, LONGEST_NAME), "end") for name, y in rows.items()),
        *(_bar(one, seconds, rows[one[0]]) for one in shown if one[0] in rows),
        *(mark for at in restarts if 0 <= at <= seconds.high for mark in _restart(seconds, at, height)),
        height=height,
    )


def _bar(one: Bar, seconds: Axis, y: float) -> Html:
    name, at, until = one
    begin, end = (seconds.place(edge, LEFT, WIDTH - RIGHT) for edge in (at, until))
    return element(
        "rect",
        element("title", f"{shortened(name, 80)} {span(until - at)}"),
        x=f"{begin:g}", y=y + 3, width=f"{max(end - begin, 1):g}", height=ROW - 6, class_="c0",
    )  # fmt: skip


def _restart(seconds: Axis, at: float, height: float) -> Iterator[Html]:
    x = seconds.place(at, LEFT, WIDTH - RIGHT)
    yield element("line", x1=f"{x:g}", x2=f"{x:g}", y1=TOP - 6, y2=height - BOTTOM, class_="c7")
    yield text(x, TOP - 8, "restart", "middle")


def as_text(view: JobView) -> str:
    """The same in lines."""
    return "\n".join(f"{at:10.1f} s  {name}  {span(until - at)}" for name, at, until in bars(view))
