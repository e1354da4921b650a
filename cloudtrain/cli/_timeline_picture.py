"""Plots a timeline: one step on all ranks, and the duration of every step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloudtrain.errors import CloudtrainError, StorageError
from cloudtrain.observe.timeline import Step, Trace

_COLOURS = {"compute": "#4c9f70", "wait": "#d1495b", "memcpy": "#edae49", "operation": "#30638e"}
_HEIGHT = 0.4
_ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 4, "frameon": False}
"""The position of legends."""


def draw(traces: Sequence[Trace], steps: Sequence[Step], path: Path) -> None:
    """Write the plot to ``path``, as PNG.

    Raises:
        CloudtrainError: matplotlib is missing, or there are no complete steps.
        StorageError: ``path`` cannot be written.
    """
    if not steps:
        raise CloudtrainError(
            "the timeline has no complete steps to draw",
            hint="The step() of a DistributedOptimizer marks the end of a step.",
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CloudtrainError("--png needs matplotlib", hint="pip install matplotlib") from error
    figure = Figure(figsize=(12, 7), layout="constrained")
    above, below = figure.subplots(2, 1)
    median = sorted(steps, key=lambda step: step.slowest.total)[len(steps) // 2]
    _draw_step(above, traces, median)
    _draw_steps(below, steps)
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _draw_step(axes: Any, traces: Sequence[Trace], step: Step) -> None:
    """Draw two bars per rank: its training thread, and the collectives that run at the same time."""
    start = min(own.began for own in step.ranks)
    for place, own in enumerate(step.ranks):
        ended = own.began + own.total
        axes.broken_barh(
            [(1000 * (own.began - start), 1000 * own.total)], (place, _HEIGHT), color=_COLOURS["compute"]
        )
        timelines = [trace for trace in traces if trace.rank == own.rank and not trace.is_profile]
        for kind, bottom in (("operation", place + _HEIGHT), ("memcpy", place), ("wait", place)):
            spans = [
                (1000 * (max(began, own.began) - start), 1000 * (min(end, ended) - max(began, own.began)))
                for trace in timelines
                for began, end in _spans(trace, kind)
                if end > own.began and began < ended
            ]
            axes.broken_barh(spans, (bottom, _HEIGHT), color=_COLOURS[kind])
    axes.set_yticks(
        [place + _HEIGHT for place in range(len(step.ranks))], [f"rank {own.rank}" for own in step.ranks]
    )
    axes.set_xlabel(f"ms of step {step.number}")
    names = {"compute": "compute", "wait": "wait", "memcpy": "copy", "operation": "collective"}
    handles = [axes.plot([], [], color=_COLOURS[kind], linewidth=6)[0] for kind in names]
    axes.legend(handles, list(names.values()), **_ABOVE)


def _draw_steps(axes: Any, steps: Sequence[Step]) -> None:
    numbers = [step.number for step in steps]
    parts = [
        [1000 * step.slowest.compute for step in steps],
        [1000 * step.slowest.exposed for step in steps],
    ]
    colours = [_COLOURS["compute"], _COLOURS["wait"]]
    axes.stackplot(numbers, *parts, colors=colours, labels=["compute", "exposed communication"])
    axes.set_xlabel("step")
    axes.set_ylabel("ms on the slowest rank")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(**_ABOVE)


def _spans(trace: Trace, category: str) -> list[tuple[float, float]]:
    """The start and end of each event in seconds since the epoch."""
    base = trace.start_ns / 1e9
    return [
        (base + event["ts"] / 1e6, base + (event["ts"] + event["dur"]) / 1e6)
        for event in trace.events
        if event.get("cat") == category and event.get("ph") == "X"
    ]
