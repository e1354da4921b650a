"""The plots on a job's page: the courses of its metrics, and a heat map of its hosts and their GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain._display.markup import Html, element, line
from cloudtrain._display.view import JobView
from cloudtrain.contract.text import by_number
from cloudtrain.observe import GpuSample, Sample
from cloudtrain.observe.metric_series import Point, thinned
from cloudtrain.platforms import Series

PARTS = 1000
"""The parts to which a plot with more values is reduced: about as many as a screen has columns."""
MOST_METRICS = 60


def plots(series: Series, counts: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Each metric as data for a plot. ``x`` is in steps, or else in seconds since the epoch; NaN and infinity
    become None.

    Args:
        series: the values of each metric.
        counts: the number of values of each metric, if ``series`` does not have all of them.
    """
    return {
        name: {**plot(points), **({"count": counts[name]} if counts else {})}
        for name, points in [*series.items()][:MOST_METRICS]
        if points
    }


def plot(points: Sequence[Point], parts: int = PARTS) -> dict[str, Any]:
    """One metric as data for a plot, with all of its spikes. ``count`` is the number of its values."""
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


MOST_HOSTS = 1024
STEPS = 10
"""The number of colours."""


def heat_map(view: JobView) -> Html:
    """Draw the last sample of each host, with each value as text, too; empty if there are no samples."""
    names = sorted(view.samples, key=by_number)
    hosts = [(name, samples[-1]) for name in names if (samples := view.samples[name])][:MOST_HOSTS]
    if not hosts:
        return Html("")
    most = max(len(sample.gpus) for _, sample in hosts)
    headings = ("host", "CPU", "memory", *(f"GPU {number}" for number in range(most)))
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    rows = (
        element("tr", element("th", line(name, 60), scope="row"), *_cells(sample)) for name, sample in hosts
    )
    table = element("table", element("thead", head), element("tbody", *rows), class_="heat")
    title = element("h2", "Hosts and GPUs")
    return element("section", title, element("div", table, class_="wide", tabindex=0))


def _cells(sample: Sample) -> Iterator[Html]:
    yield _cell(_share(sample.cpu, sample.cpus), "processors in use")
    yield _cell(_share(sample.memory, sample.memory_limit), "memory in use")
    for gpu in sample.gpus:
        yield _cell(None if gpu.use is None else gpu.use / 100, _about(gpu))


def _cell(share: float | None, title: str) -> Html:
    if share is None:
        return element("td", "n/a", title=title)
    step = round(min(max(share, 0.0), 1.0) * STEPS)
    return element("td", f"{share:.0%}", title=title, class_=f"h{step}")


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _about(gpu: GpuSample) -> str:
    memory = _share(gpu.memory, gpu.memory_total)
    facts = (
        gpu.id,
        None if memory is None else f"memory {memory:.0%}",
        None if gpu.temperature is None else f"{gpu.temperature:.0f} °C",
        None if gpu.power is None else f"{gpu.power:.0f} W",
        f"throttled: {gpu.throttling}" if gpu.throttling else None,
        f"Xid {gpu.xid:.0f}" if gpu.xid else None,
        "memory errors" if gpu.ecc else None,
    )
    return ", ".join(fact for fact in facts if fact)
