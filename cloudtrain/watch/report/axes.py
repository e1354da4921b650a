"""The axes of a plot: round numbers, and units of time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cloudtrain._display.markup import Html, element
from cloudtrain._display.sparkline import share

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 24, 34
"""The margins around the plot, in CSS pixels."""
UNITS = (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, 172800.0), ("d", 86400.0, math.inf))
"""Units of time: the name, the length in seconds, and the span in seconds below which the unit is used."""


@dataclass(frozen=True)
class Axis:
    """One axis, from ``low`` to ``high``, both finite."""

    low: float
    high: float

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers on the axis: multiples of 1, 2 or 5 times a power of ten."""
        step = _round_step(self.high / most - self.low / most)
        if not step:
            return [self.low]
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, min(last, first + 2 * most) + 1)] or [self.low]

    def place(self, value: float, begin: float, end: float) -> float:
        """The pixel of ``value`` between ``begin`` and ``end``; the middle if the axis has only one value."""
        part = share(value, self.low, self.high) if self.high > self.low else 0.5
        return round(begin + part * (end - begin), 1)


def _round_step(raw: float) -> float:
    """The smallest round number that is not below ``raw``; 0 if ``raw`` is too small or infinite."""
    if not 1e-290 < raw < math.inf:
        return 0.0
    power = 10.0 ** math.floor(math.log10(raw))
    return next((factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9)), 0.0)


def in_unit(seconds: Axis) -> tuple[str, Axis]:
    """The most readable unit for a time axis, and the axis in that unit."""
    name, size, _ = next(unit for unit in UNITS if seconds.high - seconds.low < unit[2])
    return name, Axis(seconds.low / size, seconds.high / size)


def labels(ticks: list[float]) -> list[str]:
    """The ticks as text, with just enough digits to distinguish them."""
    for digits in (4, 6, 9, 17):
        shown = [f"{tick:.{digits}g}" for tick in ticks]
        if len(set(shown)) == len(set(ticks)):
            break
    return shown


def bottom(across: Axis, title: str, height: float = HEIGHT, begin: float = LEFT) -> Iterator[Html]:
    """Draw the axis below a plot, from the pixel ``begin`` on: grid lines, numbers and a title."""
    ticks, base = across.ticks(8), height - BOTTOM
    for tick, label in zip(ticks, labels(ticks), strict=True):
        x = across.place(tick, begin, WIDTH - RIGHT)
        yield element("line", x1=f"{x:g}", x2=f"{x:g}", y1=TOP, y2=f"{base:g}", class_="grid")
        yield text(x, base + 14, label, "middle")
    yield text((begin + WIDTH - RIGHT) / 2, height - 4, title, "middle")


def left(up: Axis, height: float = HEIGHT) -> Iterator[Html]:
    """Draw the axis to the left of a plot: grid lines and numbers."""
    ticks = up.ticks()
    for tick, label in zip(ticks, labels(ticks), strict=True):
        y = up.place(tick, height - BOTTOM, TOP)
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:g}", y2=f"{y:g}", class_="grid")
        yield text(LEFT - 6, y + 4, label, "end")


def text(x: float, y: float, shown: str, anchor: str = "start", **more: object) -> Html:
    """A label in a picture."""
    return element("text", shown, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, **more)


def picture(label: str, *children: Html, height: float = HEIGHT) -> Html:
    """A picture with its text alternative."""
    return element(
        "svg",
        element("title", label),
        *children,
        viewBox=Html(f"0 0 {WIDTH} {height:g}"),
        role="img",
        aria_label=label,
    )
