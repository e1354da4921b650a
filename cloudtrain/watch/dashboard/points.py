"""The courses of metrics for a plot: of many values, the smallest and the largest of each part are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.observe.metric_series import Point, thinned
from cloudtrain.platforms import Series

PARTS = 1000
"""The parts of a plot that has more values: a screen has about as many columns."""
MOST_METRICS = 60


def plots(series: Series, counts: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Each metric as data for a plot: ``x`` are steps, or else seconds since the epoch; NaN and infinity are None.

    Args:
        counts: how many values each metric has, if ``series`` does not have all of them.
    """
    return {
        name: {**plot(points), **({"count": counts[name]} if counts else {})}
        for name, points in [*series.items()][:MOST_METRICS]
        if points
    }


def plot(points: Sequence[Point], parts: int = PARTS) -> dict[str, Any]:
    """One metric. ``count`` is the number of its values; a spike is always among those that are returned."""
    kept = thinned(points, parts)
    by_step = all(point.step is not None for point in kept)
    low = [_finite(point.min) for point in kept]
    high = [_finite(point.max) for point in kept]
    return {
        "by_step": by_step,
        "count": len(points),
        "x": [point.step if by_step else point.time for point in kept],
        "y": [_finite(point.value) for point in kept],
        **({"low": low, "high": high} if any(one is not None for one in low) else {}),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
