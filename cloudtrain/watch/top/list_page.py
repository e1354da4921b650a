"""The screen of all jobs, as lines of text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from cloudtrain._display.colours import STATUS_COLOURS
from cloudtrain._display.sparkline import sparkline
from cloudtrain._display.steps import span
from cloudtrain._display.view import JobView
from cloudtrain.runtime.supervisor.caps import money
from cloudtrain.watch.sweeps import SweepView
from cloudtrain.watch.top.hosts import hosts_of, uses_of
from cloudtrain.watch.top.jobs import Row
from cloudtrain.watch.top.lines import Column, clock, fitted, safe, table

COLUMNS = (
    Column("JOB"),
    Column("PLATFORM", 3),
    Column("STATUS"),
    Column("TOOK", 2, right=True),
    Column("DONE", right=True),
    Column("LEFT", 1, right=True),
    Column("HOSTS", 4, right=True),
    Column("GPU", right=True),
    Column("COST", 4, right=True),
    Column("LOSS", 5),
    Column("", 6),
)
SPARK = 20


@dataclass
class Choice:
    """The job or sweep that the user has selected in the list, and the sweeps whose trials are shown."""

    job: tuple[str, str] | None = None
    """The name and the platform; for a sweep, its name and ``sweep``."""
    opened: set[str] = field(default_factory=set)

    def move(self, rows: Sequence[Row], by: int) -> None:
        lines = self.lines(rows)
        self.job = _key(lines[max(min(self.position(lines) + by, len(lines) - 1), 0)]) if lines else None

    def position(self, lines: Sequence[Line]) -> int:
        """The row of the selected job; the first row if it is no longer in the list."""
        return next((number for number, line in enumerate(lines) if _key(line) == self.job), 0)

    def chosen(self, rows: Sequence[Row]) -> Row | None:
        """Return the selected job. If a sweep is selected, open or close it instead, and return None."""
        lines = self.lines(rows)
        line = lines[self.position(lines)] if lines else None
        if isinstance(line, SweepLine):
            self.job = _key(line)
            self.opened ^= {line.view.name}
            return None
        return line

    def sweep(self, rows: Sequence[Row]) -> str:
        """The selected sweep, or the sweep of the selected trial; empty if there is none."""
        lines = self.lines(rows)
        line = lines[self.position(lines)] if lines else None
        if isinstance(line, SweepLine):
            return line.view.name
        return line.sweep.name if line and line.sweep else ""

    @classmethod
    def all_open(cls, rows: Sequence[Row]) -> Choice:
        """Show the trials of every sweep."""
        return cls(opened={row.sweep.name for row in rows if row.sweep})

    def lines(self, rows: Sequence[Row]) -> list[Line]:
        """The rows of the screen: a sweep replaces its trials, or is above them if it is open."""
        trials: dict[str, list[Row]] = {}
        for row in rows:
            if row.sweep:
                trials.setdefault(row.sweep.name, []).append(row)
        found: list[Line] = []
        for row in rows:
            if row.sweep is None:
                found.append(row)
            elif own := trials.pop(row.sweep.name, None):
                is_open = row.sweep.name in self.opened
                found += [SweepLine(row.sweep, own, is_open), *(own if is_open else ())]
        return found


@dataclass(frozen=True)
class SweepLine:
    """The row of a sweep."""

    view: SweepView
    trials: Sequence[Row]
    """The trials that are running."""
    is_open: bool

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return {**self.view.to_dict(), "running": [row.name for row in self.trials]}


Line = Row | SweepLine


def list_page(
    rows: Sequence[Row],
    width: int,
    height: int | None,
    choice: Choice | None = None,
    notes: Sequence[Text] = (),
) -> list[Text]:
    """The screen, with one row for each job.

    Args:
        rows: the jobs.
        width: the columns of the screen.
        height: the lines of the screen; None for no limit.
        choice: the job to mark; None for none.
        notes: lines at the top, about the view itself.
    """
    entries = (choice or Choice()).lines(rows)
    position = choice.position(entries) if choice else -1
    first, shown = 0, entries
    if height is not None:
        room = max(height - len(notes) - 1, 1)
        first = max(min(position - room // 2, len(entries) - room), 0)
        shown = entries[first : first + room]
    cells = [_sweep_cells(line) if isinstance(line, SweepLine) else _cells(line) for line in shown]
    heading, lines = table(COLUMNS, cells, max(width - 2, 1))
    if not rows:
        return [
            *notes,
            fitted(Text("No job runs. Submit one: cloudtrain submit train.py", style="dim"), width),
        ]
    found = [Text("  ").append_text(heading), *(Text("  ").append_text(line) for line in lines)]
    if rows and choice:
        line = found[position - first + 1]
        line.plain = f"▸ {line.plain[2:]}"
        line.stylize("reverse")
    return [fitted(line, width) for line in (*notes, *found)][:height]


def _key(line: Line) -> tuple[str, str]:
    return (line.view.name, "sweep") if isinstance(line, SweepLine) else (line.name, line.platform)


def _sweep_cells(sweep: SweepLine) -> list[Text]:
    view = sweep.view
    uses = [use for row in sweep.trials if row.view for host in hosts_of(row.view) for use in uses_of(host)]
    hosts = sum(len(row.view.description.hosts) for row in sweep.trials if row.view)
    running = len(sweep.trials)
    why = f"{running} {'trial runs' if running == 1 else 'trials run'}. {view.why or view.best}"
    return [
        safe(f"{'▾' if sweep.is_open else '▸'} {view.name}", "bold"),
        safe(view.plan.platform),
        safe(view.status, "green"),
        Text(span(max(time.time() - view.trials.created_at, 0.0))),
        Text(f"{view.ended}/{view.plan.trials}"),
        Text(),
        Text(f"{hosts:,}" if hosts else ""),
        Text(f"{sum(uses) / len(uses):.0f}%" if uses else ""),
        safe(_cost_of(sweep)),
        Text(),
        safe(why, "dim"),
    ]


def _cost_of(sweep: SweepLine) -> str:
    """The cost of all trials so far, including pruned and failed ones; empty if it is not known, or is in
    several currencies."""
    costs = {
        row.name: (row.view.cost.amount, row.view.cost.currency)
        for row in sweep.trials
        if row.view and row.view.cost
    }
    for trial in sweep.view.trials.all:
        if trial.cost is not None:
            costs[trial.name] = trial.cost, trial.currency or ""
    currencies = {currency for _, currency in costs.values()} - {""}
    return money(sum(cost for cost, _ in costs.values()), currencies.pop()) if len(currencies) == 1 else ""


def _cells(row: Row) -> list[Text]:
    view = row.view
    if view is None:
        return [
            safe(row.name),
            safe(row.platform),
            Text("Unknown", style="dim"),
            *[Text()] * 7,
            safe(row.problem),
        ]
    found = view.description
    status = found.phase or str(found.status)
    hosts = len(found.hosts)
    return [
        safe(f"{'  ' if row.sweep else ''}{row.name}", "bold"),
        safe(row.platform),
        safe(status, STATUS_COLOURS.get(found.status, "yellow" if view.waits else "green")),
        Text("" if view.seconds is None else span(view.seconds)),
        Text(_done(view)),
        Text("" if found.remaining_seconds is None else span(found.remaining_seconds)),
        Text(f"{hosts:,}" if hosts else ""),
        Text(_gpu_use(view)),
        safe("" if view.cost is None else str(view.cost)),
        _loss(view),
        safe(_why(row), "yellow"),
    ]


def _done(view: JobView) -> str:
    found = view.description
    if found.progress is not None:
        return f"{found.progress:.0%}"
    return "" if found.step is None else f"step {found.step:,}"


def _gpu_use(view: JobView) -> str:
    uses = [use for host in hosts_of(view) for use in uses_of(host)]
    return f"{sum(uses) / len(uses):.0f}%" if uses else ""


def _loss(view: JobView) -> Text:
    name = min((name for name in view.series if "loss" in name), key=len, default=None)
    if name is None:
        return Text()
    value = view.description.metrics.get(name)
    line = sparkline([point.value for point in view.series[name]], SPARK)
    return Text(f"{'' if value is None else f'{value:.4g}'} {line}")


def _why(row: Row) -> str:
    view = row.view
    assert view is not None
    if row.problem:
        return f"as of {clock(row.at)}: {row.problem}"
    found = view.description
    stalled = found.stalled_seconds
    idle = "" if stalled is None else f"no step for {span(stalled)}"
    hangs = f"hangs: {view.hangs}" if view.hanging else ""
    return view.waits or hangs or idle or (found.failure.summary() if found.failure else found.reason)
