"""The values of a running trial that its pruner sees, and the sweep keeps: not a million of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cloudtrain.observe.metric_series import Point
from cloudtrain.sweep.suggest import usable

DIGITS = 8
"""Steps with the same first binary digits are one place: all below 256 are places, and one step in 8,192 at a million.
Optuna copies all values of a trial for each new one."""


def place(step: int) -> int:
    """The first step with the same first binary digits, and as many digits."""
    shift = max(step.bit_length() - DIGITS, 0)
    return step >> shift << shift


def kept(
    points: Iterable[Point], *, seen: int = 0, last: int = -1, boundaries: int = 0, is_last: bool = False
) -> Iterator[tuple[int, float]]:
    """The step and value of the first usable point of each place: trials with equal steps keep equal ones.

    Args:
        points: one without a step has that of its number, from 1 on. Steps below zero are left out, as by Optuna.
        seen: the number of points from the beginning that were looked at before.
        last: the last step that was kept.
        boundaries: multiples of it are always kept; 0: none.
        is_last: the last point is kept, too: Hyperband learns from it how long trials are.
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
