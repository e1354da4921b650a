"""The screen of one sweep, as lines of text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from cloudtrain._display.sparkline import sparkline
from cloudtrain._display.steps import span
from cloudtrain.runtime.supervisor.caps import money
from cloudtrain.sweep.trials import Trial
from cloudtrain.watch.sweep_analysis import axis_of, best_first, best_over_time, importance
from cloudtrain.watch.sweeps import SweepView, look_at_sweep, shown
from cloudtrain.watch.top.lines import Column, bar, fitted, joined, safe, table

BAR = 24
NAME = 22
"""The characters next to a bar for the share and the name of a parameter."""
SPARK = 30
AXIS = 9
"""The width of the axis of a parameter, on which each trial has a mark."""
MOST_AXES = 6
LONGEST = 12
LABEL = 12


def look(name: str, *, wait: bool = True) -> SweepView:
    """Return the current state of the sweep, and compute the importance of its parameters, which takes seconds, for the
    cache. Raises the errors of `look_at_sweep`."""
    view = look_at_sweep(name, wait=wait)
    importance(view)
    return view


def to_dict(view: SweepView) -> dict[str, Any]:
    """As data for JSON."""
    shares, why_none = importance(view)
    return {
        **view.to_dict(),
        "cost": view.trials.cost,
        "best_over_time": best_over_time(view),
        "importance": dict(shares) or None,
        "importance_unknown": why_none,
        "trials": [trial.to_dict() for trial in view.trials.all],
    }


def sweep_page(view: SweepView, width: int, height: int | None, notes: Sequence[Text] = ()) -> list[Text]:
    """The best value so far, the importance of parameters, and each trial on the axes of the parameters.

    Args:
        view: the sweep.
        width: the columns of the screen.
        height: the lines of the screen, on which the best trials that fit are shown; None for no limit.
        notes: lines at the top, about the view itself.
    """
    head = [*notes, *_head(view, width)]
    room = None if height is None else max(height - len(head) - 1, 0)
    return [fitted(line, width) for line in (*head, *_coordinates(view, width, room))][:height]


def _head(view: SweepView, width: int) -> Iterator[Text]:
    plan, trials = view.plan, view.trials
    how = plan.sampler + (f", pruned by {plan.pruner}" if plan.pruner else "")
    took = (view.ended_at or time.time()) - trials.created_at
    yield joined([safe(view.name, "bold"), safe(plan.platform), safe(view.status), span(max(took, 0.0))])
    if view.why:
        yield safe(view.why, "yellow")
    yield _line("trials", f"{view.progress}, {plan.parallel} at a time, {how}")
    if trials.cost is not None and len(trials.currencies) == 1:
        yield _line("cost", f"{money(trials.cost, *trials.currencies)} of trials that have ended")
    values = [value for _, value in best_over_time(view)]
    yield _line("best so far", view.best.removeprefix("best ") or "no trial has completed with a value yet")
    if len(values) > 1:
        yield _line("", f"{values[0]:.6g} {sparkline(values, SPARK)} {values[-1]:.6g}")
    shares, why_none = importance(view)
    if why_none:
        yield _line("importance", why_none)
    room = max(min(BAR, width - LABEL - NAME), 0)
    for number, (name, share) in enumerate(shares.items()):
        yield _line("" if number else "importance", f"{bar(share, room)} {share:6.1%}  {name}")
    yield Text()


def _line(label: str, value: str) -> Text:
    return joined([Text(f"{label:<{LABEL}}", style="dim"), safe(value)])


def _coordinates(view: SweepView, width: int, room: int | None) -> list[Text]:
    """Draw the trials, the best one first, as a mark on the axis of each parameter, from its lowest to its highest
    value."""
    names = list(view.plan.space)[:MOST_AXES]
    found = [trial for trial in best_first(view) if all(name in trial.parameters for name in names)]
    if not found:
        return []
    axes = {name: axis_of(view, name, found)[0] for name in names}
    columns = [
        Column("TRIAL"),
        Column(escaped(view.plan.metric), right=True),
        *(
            column
            for number, name in enumerate(names)
            for column in (
                Column(escaped(name), 2 * number + 1, most=AXIS),
                Column("", 2 * number + 2, most=LONGEST),
            )
        ),
    ]
    rows = [
        [
            safe(trial.name, "bold" if not number else ""),
            Text(f"{trial.value:.6g}"),
            *(cell for name in names for cell in _axis_cells(trial, name, axes[name][number])),
        ]
        for number, trial in enumerate(found[:room])
    ]
    heading, lines = table(columns, rows, width)
    return [heading, *lines]


def _axis_cells(trial: Trial, name: str, place: float) -> tuple[Text, Text]:
    at = round(place * (AXIS - 1))
    line = Text("─" * at, style="dim").append("●", style="not dim cyan").append("─" * (AXIS - 1 - at))
    return line, safe(shown(trial.parameters[name]))


def escaped(name: str) -> str:
    """A name as the heading of a column."""
    return safe(name).plain
