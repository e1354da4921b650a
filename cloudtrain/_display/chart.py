"""Sparklines as pictures: the course of a metric as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from cloudtrain._display.markup import Html, element
from cloudtrain._display.sparkline import averaged, share

WIDTH, HEIGHT, MARGIN = 160, 24, 3
"""In CSS pixels."""
POINTS = 80


def chart(name: str, values: Sequence[float]) -> Html:
    """The course of the metric ``name``; empty if it has no finite values. NaN and infinity leave a gap."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Html("")
    places = _places(averaged(values, POINTS))
    lines = [_line(part) if len(part) > 1 else _dot(*part[0]) for part in _parts(places)]
    last = next(place for place in reversed(places) if place)
    return element(
        "svg",
        element("title", _course(name, finite)),
        *lines,
        _dot(*last),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        role="img",
        aria_label=_course(name, finite),
    )


def _course(name: str, finite: Sequence[float]) -> str:
    """The text alternative."""
    return f"{name}: from {finite[0]:g} to {finite[-1]:g}, lowest {min(finite):g}, highest {max(finite):g}"


def _places(points: Sequence[float]) -> list[tuple[float, float] | None]:
    """The place of each point; None where it has no value."""
    finite = [point for point in points if math.isfinite(point)]
    low, high = min(finite), max(finite)
    step = (WIDTH - 2 * MARGIN) / max(len(points) - 1, 1)
    places: list[tuple[float, float] | None] = []
    for number, point in enumerate(points):
        if not math.isfinite(point):
            places.append(None)
            continue
        height = share(point, low, high) if high > low else 0.5
        y = HEIGHT - MARGIN - height * (HEIGHT - 2 * MARGIN)
        places.append((round(MARGIN + number * step, 1), round(y, 1)))
    return places


def _parts(places: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """The places without the gaps between them."""
    groups = groupby(places, key=lambda place: place is not None)
    return [[place for place in group if place] for has_value, group in groups if has_value]


def _line(places: Sequence[tuple[float, float]]) -> Html:
    return element("polyline", points=Html(" ".join(f"{x:g},{y:g}" for x, y in places)))


def _dot(x: float, y: float) -> Html:
    return element("circle", cx=f"{x:g}", cy=f"{y:g}", r=2)
