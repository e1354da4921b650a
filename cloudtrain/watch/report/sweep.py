"""The report of a sweep: the best value over time, the importance of parameters, and a table of trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cloudtrain._display.markup import Html, element, shortened
from cloudtrain._display.sparkline import sparkline
from cloudtrain._display.steps import span
from cloudtrain._display.view import moment
from cloudtrain.cost import Cost
from cloudtrain.observe.metric_series import Point
from cloudtrain.sweep.trials import COMPLETED, Trial
from cloudtrain.watch.report.axes import LEFT, TOP, WIDTH, picture, text
from cloudtrain.watch.report.curves import Curve, describe, plot
from cloudtrain.watch.report.document import Block, Document, Facts, Figure, Paragraph, Section, Table
from cloudtrain.watch.sweep_analysis import (
    axis_of,
    best_first,
    best_over_time,
    completed,
    importance,
    part_of,
)
from cloudtrain.watch.sweeps import SweepView, shown, values_of

MOST_LINES = 400
"""The most trials that are drawn; the best ones are."""
MOST_AXES = 12
MOST_ROWS = 1000
BUCKETS = 600
HEIGHT, BASE = 280.0, 40.0
BAR = 24
LONGEST_LABEL = 16


def sweep_report(view: SweepView, address: Callable[[Trial], str] | None = None) -> Document:
    """The report of a sweep.

    Args:
        address: returns the address of the page of a trial's job; without it, the table has no links.
    """
    return Document(
        view.name,
        f"A sweep on {view.plan.platform or 'this machine'}: {view.status}",
        [
            Section("Sweep", list(_about(view))),
            Section("Best so far", list(_best_so_far(view))),
            Section("Importance of parameters", [_importance(view)]),
            Section("Parallel coordinates", list(_coordinates(view))),
            Section("Trials", list(_trials(view, address))),
        ],
    )


def _about(view: SweepView) -> Iterator[Block]:
    plan, trials, best = view.plan, view.trials, view.trials.best
    states: dict[str, int] = {}
    for trial in trials.all:
        states[trial.status] = states.get(trial.status, 0) + 1
    rows = [
        ("status", view.status),
        ("metric", f"{plan.metric} ({plan.goal})"),
        ("trials", f"{view.progress}, {plan.parallel} at a time"),
        ("states", ", ".join(f"{count:,} {state.lower()}" for state, count in states.items())),
        ("sampler", plan.sampler + (f", pruned by {plan.pruner}" if plan.pruner else "")),
        ("started", moment(trials.created_at)),
        ("cost of ended trials", _money(trials.cost, *trials.currencies)),
        ("max_cost", "" if plan.max_cost is None else f"{plan.max_cost:,.2f}"),
    ]
    if best:
        rows += [
            ("best trial", best.name),
            ("best value", f"{best.value:.6g}"),
            ("its parameters", values_of(best)),
        ]
    yield Facts([row for row in rows if row[1]])
    if view.why:
        yield Paragraph(view.why, "warning")


def _money(amount: float | None, *currencies: str) -> str:
    if amount is None:
        return ""
    return str(Cost(amount, *currencies)) if len(currencies) == 1 else f"{amount:,.2f}"


def _best_so_far(view: SweepView) -> Iterator[Block]:
    """Draw a staircase: the best value of the trials that had completed by each time."""
    points: list[Point] = []
    for time, best in best_over_time(view):
        if points:
            points.append(Point(time, points[-1].value))
        points.append(Point(time, best))
    curves = [Curve("best", points, view.trials.created_at)]
    drawn = plot(f"best {view.plan.metric}", curves, BUCKETS) if points else Html("")
    if drawn:
        line = sparkline([point.value for point in points])
        yield Figure(drawn, f"{describe(f'best {view.plan.metric}', curves)}\n{line}")
    else:
        yield Paragraph("No trial has completed with a value yet.")


def _importance(view: SweepView) -> Block:
    shares, why_none = importance(view)
    if why_none:
        return Paragraph(why_none)
    rows = [(name, f"{share:6.1%} {'█' * round(share * BAR)}") for name, share in shares.items()]
    return Facts(rows)


def _coordinates(view: SweepView) -> Iterator[Block]:
    """Draw a vertical axis for each parameter and for the value, and a line for each trial, coloured by its place."""
    names = list(view.plan.space)[:MOST_AXES]
    found = [
        trial for trial in best_first(view)[:MOST_LINES] if all(name in trial.parameters for name in names)
    ]
    if not found:
        return
    axes = [axis_of(view, name, found) for name in names]
    values = [trial.value or 0.0 for trial in found]
    low, high = min(values), max(values)
    axes.append(
        ([part_of(value, low, high) for value in values], [(0.0, f"{low:.4g}"), (1.0, f"{high:.4g}")])
    )
    across = [LEFT + number * (WIDTH - 2 * LEFT) / max(len(axes) - 1, 1) for number in range(len(axes))]
    lines = []
    for number in reversed(range(len(found))):  # the best on top
        points = " ".join(f"{x:g},{_up(parts[number]):g}" for x, (parts, _) in zip(across, axes, strict=True))
        rank = number / len(found)
        look = "c1" if number == 0 else "c0" if rank < 0.1 else "c0 middle" if rank < 0.5 else "c0 rest"
        label = (
            f"{found[number].name}: {values_of(found[number])}, {view.plan.metric}={found[number].value:.6g}"
        )
        lines.append(
            element("polyline", element("title", label), points=Html(points), class_=f"curve {look}")
        )
    bars, labels = [], []
    for name, x, (_, ticks) in zip([*names, view.plan.metric], across, axes, strict=True):
        bars.append(element("line", x1=f"{x:g}", x2=f"{x:g}", y1=TOP + 8, y2=HEIGHT - BASE, class_="grid"))
        labels.append(text(x, 16, shortened(name, LONGEST_LABEL), "middle", class_="name"))
        for part, label in ticks:
            labels.append(text(x - 4, _up(part) + 4, shortened(label, LONGEST_LABEL), "end", class_="over"))
    best = f"The best trial is {found[0].name}: {values_of(found[0])}"
    label = f"Parameters and {view.plan.metric} of {len(found):,} trials. {best}"
    yield Figure(picture(label, *bars, *lines, *labels, height=HEIGHT), label)
    more = len(completed(view)) - len(found)
    left = len(view.plan.space) - len(names)
    note = "The best trial has its own colour, and the best tenth is dark."
    note += f" {more:,} worse trials are not drawn." if more else ""
    yield Paragraph(note + (f" {left} more parameters are in the table." if left else ""))


def _up(part: float) -> float:
    return round(HEIGHT - BASE - part * (HEIGHT - BASE - TOP - 8), 1)


def _trials(view: SweepView, address: Callable[[Trial], str] | None) -> Iterator[Block]:
    sign = 1.0 if view.plan.goal == "minimize" else -1.0
    rows = sorted(
        view.trials.all,
        key=lambda one: (one.status != COMPLETED, one.value is None, sign * (one.value or 0.0), -one.number),
    )[:MOST_ROWS]
    names = list(view.plan.space)[:MOST_AXES]
    if not rows:
        yield Paragraph("There is none yet.")
        return
    yield Table(
        ("trial", "state", view.plan.metric, *names, "took", "cost", ""),
        [
            (
                trial.name,
                trial.status,
                "" if trial.value is None else f"{trial.value:.6g}",
                *(shown(trial.parameters.get(name, "")) for name in names),
                "" if trial.ended_at is None else span(max(trial.ended_at - trial.asked_at, 0.0)),
                _money(trial.cost, *filter(None, [trial.currency])),
                trial.why,
            )
            for trial in rows
        ],
        [address(trial) for trial in rows] if address else (),
    )
    if len(view.trials.all) > MOST_ROWS:
        more = len(view.trials.all) - MOST_ROWS
        yield Paragraph(f"And {more:,} more: cloudtrain sweep describe {view.name} --json")
