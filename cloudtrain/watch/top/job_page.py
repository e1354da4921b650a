"""The screen of one job, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from cloudtrain._display.colours import STATUS_COLOURS
from cloudtrain._display.facts import goodput_share, goodput_times
from cloudtrain._display.sparkline import sparkline, timed_sparkline
from cloudtrain._display.steps import span, step_facts
from cloudtrain._display.view import JobView
from cloudtrain._display.waits import waits_text
from cloudtrain.observe.course import Span
from cloudtrain.watch.top.hosts import Device, Group, Host, grouped, hosts_of, merged
from cloudtrain.watch.top.lines import Column, axis, bar, clock, fitted, joined, safe, segments, size, table

MOST_METRICS = 5
MOST_CALLS = 4
"""The most calls that are shown of the stack of a rank that hangs."""
SEPARATE = 16
"""Up to this many hosts are shown one by one if the height is not limited."""
WIDEST_SPARK, NARROWEST_SPARK = 30, 8
WIDEST_BAR, NARROWEST_BAR = 20, 5
LABEL = 9
"""The width of the labels before facts."""
WITH_MEMORY = 125
"""The least width at which the course of the memory fits."""
SAMPLE_SECONDS = 10.0
MOST_SKEW = 60.0
"""The most seconds by which the clocks of hosts may differ."""
COLUMNS = (
    Column("HOST"),
    Column("RANKS", 3, most=14),
    Column("PHASE", 2, most=20),
    Column("STEP", 4, right=True),
    Column("DEVICE"),
    Column("USE"),
    Column("%", right=True),
    Column("MEMORY", 6),
    Column("GB", 1, right=True),
    Column("", 5),
)
USE, MEMORY = 5, 7


@dataclass
class Scroll:
    """The part of the hosts that the user has scrolled to, and whether equal ones are grouped."""

    first: int = 0
    """The first row of hosts on the screen."""
    separate: bool = False
    """Whether equal hosts are shown one by one."""
    room: int = 1
    """The number of rows of hosts that fitted on the screen when it was last drawn."""
    rows: int = 0
    """The total number of rows of hosts."""
    drawn: tuple[JobView, tuple[object, ...], tuple[Text, list[Text]]] | None = None
    """The last rows of hosts, kept because computing them for 1,024 hosts with 8 GPUs takes longer than the wait for
    a key."""

    def move(self, by: int) -> None:
        self.first = max(min(self.first + by, self.rows - self.room), 0)


def job_page(
    view: JobView, width: int, height: int | None, scroll: Scroll | None = None, notes: Sequence[Text] = ()
) -> list[Text]:
    """The whole screen of a job.

    Args:
        view: the job.
        width: the columns of the screen.
        height: the lines of the screen; None for no limit.
        scroll: the part of the hosts to show.
        notes: lines at the top, about the view itself.
    """
    scroll = scroll or Scroll()
    head = [*notes, *_head(view, width)]
    if height is not None and len(head) > height // 2 + len(notes):
        head = head[: max(height // 2 + len(notes), 4)]
    heading, rows = _host_rows(view, width, scroll, None if height is None else height - len(head) - 1)
    scroll.rows = len(rows)
    if height is None:
        return [fitted(line, width) for line in (*head, heading, *rows)]
    scroll.room = max(height - len(head) - 1, 1)
    scroll.move(0)
    shown = rows[scroll.first : scroll.first + scroll.room]
    return [fitted(line, width) for line in (*head, heading, *shown)][:height]


def _head(view: JobView, width: int) -> Iterator[Text]:
    found = view.description
    took = "" if view.seconds is None else span(view.seconds)
    status = safe(str(found.status), STATUS_COLOURS.get(found.status, "bold blue"))
    attempt = f"attempt {found.attempt + 1}" if found.attempt else ""
    phase = safe(found.phase or "", "green")
    yield joined([safe(found.name, "bold"), safe(f"on {found.platform}"), status, phase, took, attempt])
    if view.waits:
        yield safe(f"waits: {view.waits}", "yellow")
    elif found.reason:
        yield safe(found.reason, "yellow")
    elif view.states and view.states[-1].message and not found.status.is_final:
        last = view.states[-1]  # for example its nodes, or that the scheduler does not answer
        yield safe(
            f"{found.platform}: {last.name} {last.message}", "yellow" if last.name == "Unknown" else "dim"
        )
    if found.failure:
        yield safe(found.failure.summary(), "bold red")
    if view.hanging:
        yield safe(f"hangs: {view.hangs}", "bold red")
        yield from (safe(f"  {line}", "red") for line in view.hanging.stack.splitlines()[:MOST_CALLS])
    yield from _labelled("steps", _steps(view, width - LABEL))
    yield from _labelled("time", _goodput(view))
    yield from _labelled("waiting", waits_text(view))
    yield from _labelled("cost", "" if view.cost is None else view.cost.line())
    yield from _phases(view, width)
    yield from _metrics(view, width)
    for warning in found.warnings[-2:]:
        yield safe(f"warning: {warning}", "yellow")


def _labelled(label: str, value: Text | str) -> Iterator[Text]:
    if value:
        yield Text(f"{label:<{LABEL}}", style="dim").append_text(
            value if isinstance(value, Text) else Text(value, style="not dim")
        )


def _steps(view: JobView, width: int) -> str:
    """The facts about steps, after a bar that is as long as the width permits."""
    facts = step_facts(view.description)
    share, room = view.description.progress, min(width - len(facts) - 1, WIDEST_BAR)
    return facts if share is None or not facts or room < NARROWEST_BAR else f"{bar(share, room)} {facts}"


def _goodput(view: JobView) -> str:
    found = view.description.goodput
    if found is None:
        return ""
    share = goodput_share(view.description)
    return ("" if share is None else f"goodput {share:.1%}: ") + goodput_times(found)


def _phases(view: JobView, width: int) -> Iterator[Text]:
    """Draw the phases of the last attempt on a time axis."""
    found = view.description
    last = found.attempt if not view.spans else max(one.attempt for one in view.spans)
    spans = sorted((one for one in view.spans if one.attempt == last), key=lambda one: one.began)
    end = max(view.now, spans[-1].began) if spans else 0.0
    if not spans or end - spans[0].began < 1:
        return
    room = max(min(width - 29, 100), 10)
    line = Text(f"{'phases':<{LABEL}}", style="dim").append(f"{clock(spans[0].began)} ")
    yield line.append_text(segments(_parts(spans, end), room)).append(f" {clock(end)}", style="not dim")


def _parts(spans: Sequence[Span], end: float) -> list[tuple[str, float]]:
    """Phases with their durations, and the gaps between them without a name. A phase ends where the next one
    begins."""
    parts = []
    for number, one in enumerate(spans):
        following = spans[number + 1].began if number + 1 < len(spans) else end
        until = min(following if one.ended is None else min(one.ended, following), end)
        parts += [(one.phase, max(until - one.began, 0.0)), ("", max(following - max(until, one.began), 0.0))]
    return parts


def _metrics(view: JobView, width: int) -> Iterator[Text]:
    names = sorted(view.series, key=lambda name: ("loss" not in name, name))[:MOST_METRICS]
    label = min(max(map(len, names), default=0), 24)
    for name in names:
        line = sparkline([point.value for point in view.series[name]], max(min(width - label - 18, 60), 8))
        value = view.description.metrics.get(name)
        number = f"{value:>10.5g}" if value is not None else " " * 10
        yield fitted(safe(f"{name:<{label}}", "dim"), label).append(f" {number}  {line}", style="not dim")
    if len(view.series) > MOST_METRICS:
        more = len(view.series) - MOST_METRICS
        yield Text(f"and {more} more metrics: cloudtrain metrics", style="dim")


def _host_rows(view: JobView, width: int, scroll: Scroll, room: int | None) -> tuple[Text, list[Text]]:
    """The headings and the rows of the hosts, which are computed once for each view and layout."""
    how = (width, scroll.separate, room)
    if not (scroll.drawn and scroll.drawn[0] is view and scroll.drawn[1] == how):
        scroll.drawn = view, how, _make_host_rows(view, width, scroll, room)
    return scroll.drawn[2]


def _make_host_rows(view: JobView, width: int, scroll: Scroll, room: int | None) -> tuple[Text, list[Text]]:
    hosts = hosts_of(view)
    groups = [Group([host]) for host in hosts]
    rows_each = max((len([*group.devices()]) for group in groups[:8]), default=1) or 1
    many = len(hosts) * rows_each > room if room is not None else len(hosts) > SEPARATE
    if many and not scroll.separate:
        groups = grouped(hosts)
    if not groups:
        return Text(), []
    spark = (width - 107) // 2 if width >= WITH_MEMORY else width - 84
    spark = max(min(spark, WIDEST_SPARK), NARROWEST_SPARK)
    start, end = _time_axis(hosts, spark)
    is_short = many and not scroll.separate
    rows = [row for group in groups for row in _group_rows(group, start, end, spark, is_short)]
    if end:
        rows.append(
            [Text(axis(start, end, spark), style="dim") if n in (USE, MEMORY) else Text() for n in range(10)]
        )
    return table(COLUMNS, rows, width)


def _time_axis(hosts: Sequence[Host], cells: int) -> tuple[float, float]:
    """The start and the end of the samples, ignoring hosts whose clocks are wrong; 0 if there are none."""
    ends = sorted(host.samples[-1].time for host in hosts if host.samples)
    if not ends:
        return 0.0, 0.0
    usual = ends[len(ends) // 2]
    end = max(time for time in ends if time <= usual + MOST_SKEW)
    starts = sorted(host.samples[0].time for host in hosts if host.samples)
    return min(starts[len(starts) // 2], end - cells * SAMPLE_SECONDS), end


def _group_rows(group: Group, start: float, end: float, spark: int, is_short: bool) -> Iterator[list[Text]]:
    devices = [*group.devices()]
    devices = merged(devices) if is_short else devices
    is_odd = any(host.marks or host.faults or host.failed for host in group.hosts)
    style = "red" if any(host.failed for host in group.hosts) else "yellow" if is_odd else ""
    about = [
        safe(group.name, f"bold {style}"),
        safe(group.ranks),
        safe(group.state),
        Text(group.step),
    ]
    facts = group.facts
    if not devices:
        yield [*about, *[Text()] * 5, safe(facts, style)]
    for number, device in enumerate(devices):
        beginning = about if not number else [Text()] * 4
        both = [facts, device.about] if not number else [device.about]
        look = style if not number else "yellow" if device.is_faulty else "dim"
        yield [*beginning, *_device(device, start, end, spark), safe(", ".join(filter(None, both)), look)]


def _device(device: Device, start: float, end: float, spark: int) -> list[Text]:
    use, memory = device.last_use, device.last_memory
    most = device.total or max((value for _, value in device.memory), default=0.0) or 1.0
    total = f"/{size(device.total)}" if device.total else ""
    return [
        Text(device.name, style="dim"),
        Text(
            timed_sparkline(device.use, start, end, spark, 100.0),
            style="green" if (use or 0) >= 50 else "yellow",
        ),
        Text("n/a" if use is None else f"{use:.0f}", style="dim" if use is None else "bold"),
        Text(timed_sparkline(device.memory, start, end, spark, most), style="blue"),
        Text("n/a" if memory is None else f"{size(memory)}{total}", style="dim" if memory is None else ""),
    ]
