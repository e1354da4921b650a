"""The report of one job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from cloudtrain._display.sparkline import sparkline
from cloudtrain._display.stacks import title as title_of
from cloudtrain._display.steps import span
from cloudtrain._display.view import moment
from cloudtrain.contract import FailureReport
from cloudtrain.contract.text import counted
from cloudtrain.observe import Sample
from cloudtrain.observe.metric_series import Point
from cloudtrain.observe.stacks import StackDump
from cloudtrain.watch.report import facts
from cloudtrain.watch.report.curves import Curve, as_text, describe, draw, plot
from cloudtrain.watch.report.document import Block, Code, Document, Facts, Figure, Paragraph, Section, Table
from cloudtrain.watch.report.gather import Gathered

MOST_CURVES = 24
MOST_METRICS = 200
MOST_PARAMETERS = 500
BUCKETS = 300
"""Buckets of a curve, if the report has few curves."""
MOST_BUCKETS = 30_000
"""The most buckets of all curves together, to keep the report small."""
TAIL = 40
"""The last lines of the output that are shown."""


def report(job: Gathered) -> Document:
    """The report of a job."""
    return Document(
        job.name,
        f"A job on {job.platform}: {facts.status(job)}",
        [
            Section("Failure", list(failure_blocks(job))),
            Section("Hang", list(hang_blocks(job))),
            Section(
                "What ran", [Facts(list(facts.what_ran(job))), *map(_warning, job.gaps), *_warnings(job)]
            ),
            Section("Parameters", list(_parameters(job))),
            Section("Metrics", list(metric_blocks([job]))),
            Section("Hosts and GPUs", list(sample_blocks(job))),
            Section("Phases", list(_phases(job))),
            Section("Goodput", [Paragraph(facts.goodput(job))] if facts.goodput(job) else []),
            Section("Request", list(_request(job))),
        ],
    )


def failure_blocks(job: Gathered) -> Iterator[Block]:
    """The reason why the job failed; nothing if it did not."""
    failure: FailureReport | None = job.description.failure if job.description else None
    if failure is None:
        return
    yield Paragraph(f"{failure.summary()} [{failure.failure_class}]", "failure")
    if failure.hint:
        yield Paragraph(failure.hint)
    for title, text in (
        ("Stacks of all ranks", failure.stacks),
        ("Memory", failure.memory),
        ("Traceback", failure.traceback),
        ("Last lines of the output", "\n".join(failure.log_tail[-TAIL:])),
    ):
        if text.strip():
            yield Code(title, text, is_open=title in ("Memory", "Traceback"))


def hang_blocks(job: Gathered) -> Iterator[Block]:
    """The rank that hangs, since when, and the stacks taken then; nothing if no rank hangs."""
    hanging = job.view.hanging if job.view else None
    if job.view is None or hanging is None:
        return
    yield Paragraph(job.view.hangs, "failure")
    stacks = job.view.stacks
    if stacks and stacks.time >= hanging.since:
        yield from stack_blocks(stacks)
    elif hanging.stack:
        yield Code(f"Stack of rank {hanging.rank}", hanging.stack, is_open=True)


def stack_blocks(dump: StackDump) -> Iterator[Block]:
    """The stacks of ranks, those that differ from most first."""
    yield Paragraph(f"{counted(dump.ranks, 'rank')}, at {moment(dump.time)}")
    for number, group in enumerate(dump.groups):
        yield Code(title_of(group), group.stack, is_open=number == 0)
    if dump.silent:
        yield Paragraph(f"No answer in time from {', '.join(dump.silent)}.", "warning")


def _warning(text: str) -> Paragraph:
    return Paragraph(text, "warning")


def _warnings(job: Gathered) -> Iterator[Block]:
    yield from map(_warning, job.description.warnings[-TAIL:] if job.description else ())


def _parameters(job: Gathered) -> Iterator[Block]:
    found = facts.parameters(job)
    if found:
        yield Facts(list(found.items())[:MOST_PARAMETERS])
        yield from more(len(found) - MOST_PARAMETERS, "parameters, in the request")


def more(count: int, where: str) -> Iterator[Block]:
    """Note that ``count`` entries are left out, and where to find them; nothing if none are."""
    if count > 0:
        yield Paragraph(f"And {count:,} more {where}.")


def metric_blocks(jobs: Sequence[Gathered]) -> Iterator[Block]:
    """The metrics of one or more jobs: a table, and for each metric a plot with the curves of all jobs."""
    names = list(dict.fromkeys(name for job in jobs if job.view for name in job.view.series))
    if not names:
        return
    yield Table(
        ("metric", *(["job"] if len(jobs) > 1 else []), "last", "lowest", "highest", "values"),
        [
            [name, *([job.name] if len(jobs) > 1 else []), *facts.last(points)]
            for name in names[: MOST_METRICS // len(jobs) + 1]
            for job, points in _series(jobs, name)
        ],
    )
    yield from more(len(names) - MOST_METRICS // len(jobs) - 1, "metrics: cloudtrain metrics JOB --json")
    drawn = names[:MOST_CURVES]
    buckets = min(BUCKETS, MOST_BUCKETS // (len(drawn) * len(jobs)))
    for name in drawn:
        curves = [Curve(job.name, points, _start(job, points)) for job, points in _series(jobs, name)]
        picture = plot(name, curves, max(buckets, 20))
        if picture:
            yield Figure(picture, "\n".join([describe(name, curves), *map(_sparkline, curves)]))
    yield from more(len(names) - len(drawn), "metrics are not drawn")


def _series(jobs: Sequence[Gathered], name: str) -> Iterator[tuple[Gathered, Sequence[Point]]]:
    for job in jobs:
        points = job.view.series.get(name) if job.view else None
        if points:
            yield job, points


def _start(job: Gathered, points: Sequence[Point]) -> float:
    started = job.description.started_at if job.description else None
    return points[0].time if started is None else started


def _sparkline(curve: Curve) -> str:
    return sparkline([point.value for point in curve.points])


def sample_blocks(job: Gathered) -> Iterator[Block]:
    """The use of processors, memory and GPUs over time, as far as samples are kept: the mean over all hosts,
    and the lowest and the highest use."""
    found = {host: samples for host, samples in job.view.samples.items() if samples} if job.view else {}
    if not found:
        return
    start = _start(job, [Point(next(iter(found.values()))[0].time, 0.0)])
    for title, use_of in USES.items():
        moments: dict[float, list[float]] = {}
        for samples in found.values():
            for sample in samples:
                moments.setdefault(sample.time // SAMPLE_SECONDS * SAMPLE_SECONDS, []).extend(use_of(sample))
        points = [
            Point(time, sum(uses) / len(uses), None, min(uses), max(uses), len(uses))
            for time, uses in sorted(moments.items())
            if uses
        ]
        curves = [Curve(job.name, points, start)]
        if points and (picture := plot(title, curves, BUCKETS)):
            yield Figure(picture, "\n".join([describe(title, curves), *map(_sparkline, curves)]))


SAMPLE_SECONDS = 10.0
"""Samples of different hosts within this interval are drawn as one point."""


def _gpu_memory(sample: Sample) -> list[float]:
    known = [(gpu.memory, gpu.memory_total) for gpu in sample.gpus]
    return [100 * memory / total for memory, total in known if memory is not None and total]


USES: Mapping[str, Callable[[Sample], list[float]]] = {
    "CPU use, %": lambda one: [100 * one.cpu / one.cpus] if one.cpu is not None and one.cpus else [],
    "memory use, %": lambda one: (
        [100 * one.memory / one.memory_limit] if one.memory is not None and one.memory_limit else []
    ),
    "GPU use, %": lambda one: [gpu.use for gpu in one.gpus if gpu.use is not None],
    "GPU memory use, %": _gpu_memory,
}


def _phases(job: Gathered) -> Iterator[Block]:
    if job.view is None:
        return
    picture = draw(job.view)
    if picture:
        yield Figure(picture, as_text(job.view))
    table = [(name, span(took)) for name, took in job.view.description.phases.items()]
    if table:
        yield Table(("phase", "seconds on the slowest host"), table)
    if job.view.states:
        rows = [(moment(one.time), one.name, one.message) for one in job.view.states[-TAIL:]]
        yield Table(("since", "state", "message"), rows)


def _request(job: Gathered) -> Iterator[Block]:
    if job.request:
        yield Code(
            "The request to the platform, without secrets",
            json.dumps(job.request, indent=2, ensure_ascii=False),
        )
