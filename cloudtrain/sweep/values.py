"""Thins out the values of a running trial that its pruner sees and the sweep keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cloudtrain.observe.metric_series import Point
from cloudtrain.sweep.suggest import usable

DIGITS = 8
"""Steps with the same leading binary digits form one place: each step below 256, or 4,096 steps just below a million.
Optuna copies all values of a trial for each new one."""


def place(step: int) -> int:
    """The first step of the place of ``step``."""
    shift = max(step.bit_length() - DIGITS, 0)
    return step >> shift << shift


def kept(
    points: Iterable[Point], *, seen: int = 0, last: int = -1, boundaries: int = 0, is_last: bool = False
) -> Iterator[tuple[int, float]]:
    """The step and value of the first usable point of each place, so that trials with equal steps keep equal steps.

    Args:
        points: the points of a trial. The step of a point without one is its number, from 1 on. Negative steps are left
            out, as in Optuna.
        seen: the number of points at the beginning that were already looked at.
        last: the last step that was kept.
        boundaries: steps that are multiples of this number are always kept; 0 for none.
        is_last: whether to keep the last point, too, from which Hyperband learns how long trials are.
    """
    end = None
    for number, point in enumerate(points, 1):
        step = number if point.step is None else point.step
        value = usable(point.value)
        if value is None or step < 0:
            continue
        end = step, value
        if number <= seen:
            continue
        if last < 0 or place(step) != place(last) or (boundaries and step % boundaries == 0):
            last = step
            yield step, value
    if is_last and end and end[0] > last:
        yield end
