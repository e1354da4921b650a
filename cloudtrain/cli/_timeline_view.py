"""Shows the times of training steps as tables or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import click

from cloudtrain.cli._table import print_table
from cloudtrain.observe.timeline import RankStep, Step, Trace

PARTS: dict[str, Callable[[RankStep], float]] = {
    "total": lambda step: step.total,
    "compute": lambda step: step.compute,
    "communication": lambda step: step.communication,
    "exposed": lambda step: step.exposed,
}
"""The parts of a step. ``total`` is the sum of ``compute`` and ``exposed``."""


def describe(traces: Sequence[Trace], steps: Sequence[Step]) -> dict[str, Any]:
    """The content of both tables as JSON values. Times are in seconds."""
    return {
        "ranks": [
            {
                "rank": trace.rank,
                "host": trace.host,
                "slowest_in": _slowest(steps)[trace.rank],
                "clock_offset": trace.offsets[-1].offset_ns / 1e9 if trace.offsets else None,
                "clock_uncertainty": trace.offsets[-1].round_trip_ns / 2e9 if trace.offsets else None,
                **_summary(_own(trace.rank, steps)),
            }
            for trace in _timelines(traces)
        ],
        "steps": [
            {
                "step": step.number,
                "slowest": step.slowest.rank,
                "behind": step.behind,
                "ranks": [
                    {"rank": own.rank, "began": own.began, **{name: get(own) for name, get in PARTS.items()}}
                    for own in step.ranks
                ],
            }
            for step in steps
        ],
    }


def show_ranks(traces: Sequence[Trace], steps: Sequence[Step]) -> None:
    """Print one row per rank: the median and the maximum of each part of its steps."""
    if not steps:
        click.echo(
            "No complete steps. The step() of a DistributedOptimizer marks the end of a step.", err=True
        )
        return
    headings = [f"{name.upper()} {what}" for name in PARTS for what in ("P50", "WORST")]
    rows = []
    for trace in _timelines(traces):
        own = _own(trace.rank, steps)
        if own:
            numbers = [_ms(value) for part in _summary(own)["parts"].values() for value in part.values()]
            rows.append(
                [f"{trace.rank}", trace.host, *numbers, f"{_slowest(steps)[trace.rank]}/{len(steps)}"]
            )
    print_table(["RANK", "HOST", *headings, "SLOWEST IN"], rows, right=["RANK", *headings, "SLOWEST IN"])
    click.echo(
        "In milliseconds. TOTAL = COMPUTE + EXPOSED (communication that does not overlap with compute).",
        err=True,
    )


def show_steps(steps: Sequence[Step]) -> None:
    """Print one row per step: its parts on the slowest rank, which the other ranks wait for."""
    rows = [
        [
            f"{step.number}",
            *(_ms(get(step.slowest)) for get in PARTS.values()),
            f"{step.slowest.rank}",
            _ms(step.behind),
        ]
        for step in steps
    ]
    names = ["STEP", *map(str.upper, PARTS), "SLOWEST RANK", "BEHIND"]
    print_table(names, rows, right=names)
    click.echo(
        "In milliseconds, on the slowest rank. BEHIND: its compute minus that of the median rank.", err=True
    )


def _timelines(traces: Sequence[Trace]) -> Iterable[Trace]:
    """The last timeline of each rank."""
    return {trace.rank: trace for trace in traces if not trace.is_profile}.values()


def _own(rank: int, steps: Sequence[Step]) -> list[RankStep]:
    return [own for step in steps for own in step.ranks if own.rank == rank]


def _slowest(steps: Sequence[Step]) -> Counter[int]:
    return Counter(step.slowest.rank for step in steps)


def _summary(own: Sequence[RankStep]) -> dict[str, Any]:
    values = {name: [get(step) for step in own] for name, get in PARTS.items()}
    return {
        "steps": len(own),
        "parts": {name: {"p50": median(them), "worst": max(them)} for name, them in values.items() if them},
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"
