"""The values of a trial that its pruner sees."""

from __future__ import annotations

import itertools
import math
import random

from cloudtrain.observe.metric_series import Point
from cloudtrain.sweep.values import kept, place


def points(steps: list[int]) -> list[Point]:
    return [Point(0.0, float(step), step) for step in steps]


def test_a_long_trial_keeps_few_values_and_those_of_others_with_the_same_steps() -> None:
    every = points([*range(30_000)])
    whole = [step for step, _ in kept(every)]
    assert whole[:256] == [*range(256)]
    assert len(whole) < 1200
    assert all(later - step <= max(step / 128, 1) for step, later in itertools.pairwise(whole))
    source, parts, seen = random.Random(1), list[int](), 0
    while seen < len(every):  # as a controller looks at it
        known = min(seen + source.randint(1, 900), len(every))
        parts += [step for step, _ in kept(every[:known], seen=seen, last=max(parts, default=-1))]
        seen = known
    assert parts == whole


def test_steps_that_are_far_apart_are_all_kept() -> None:
    steps = [*range(1407, 200_000, 1700)]
    assert [step for step, _ in kept(points(steps))] == steps
    assert place(1407) <= 1407


def test_boundaries_are_kept() -> None:
    steps = [step for step, _ in kept(points([*range(30_002)]), boundaries=10_001)]
    assert {10_001, 20_002} <= {*steps}


def test_the_last_value_of_a_trial_is_kept() -> None:
    """Of 2,700 steps, Hyperband makes another bracket than of 2,696."""
    every = points([*range(1, 2_701)])
    whole = [*kept(every)]
    assert whole[-1][0] < 2_700
    assert [*kept(every, is_last=True)] == [*whole, (2_700, 2_700.0)]
    assert [*kept(every, seen=2_700, last=whole[-1][0], is_last=True)] == [(2_700, 2_700.0)]
    assert not [*kept(every, seen=2_700, last=2_700, is_last=True)]


def test_what_no_pruner_can_use_is_left_out() -> None:
    given = [Point(0, 1.0, -1), Point(0, math.nan, 0), Point(0, 2.0, 1), Point(0, math.inf, 2)]
    assert [*kept(given)] == [(1, 2.0)]
    assert [*kept([Point(0, 5.0), Point(0, 6.0)], seen=1, last=1)] == [(2, 6.0)]
