"""The comparison of several jobs, which begins with the differences between their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudtrain._display.steps import span
from cloudtrain.platforms import fields
from cloudtrain.watch.report import facts
from cloudtrain.watch.report.content import MOST_PARAMETERS, failure_blocks, metric_blocks, more
from cloudtrain.watch.report.document import Block, Document, Paragraph, Section, Table
from cloudtrain.watch.report.gather import Gathered

OWN_NAME = "JOB"
"""Replaces the job's own name in its request, because that is not a difference."""


def comparison(jobs: Sequence[Gathered]) -> Document:
    """The comparison of two or more jobs."""
    return Document(
        " · ".join(job.name for job in jobs),
        f"A comparison of {len(jobs)} jobs",
        [
            Section("What differs", list(_differences(jobs))),
            Section("Metrics", list(metric_blocks(jobs))),
            Section("Durations", [_durations(jobs)]),
            Section("Failures", [block for job in jobs for block in _failure(job)]),
            Section(
                "Jobs",
                [
                    _jobs(jobs),
                    *(Paragraph(f"{job.name}: {gap}", "warning") for job in jobs for gap in job.gaps),
                ],
            ),
        ],
    )


def _differences(jobs: Sequence[Gathered]) -> Iterator[Block]:
    known = [job for job in jobs if job.request]
    parameters = [{**facts.parameters(job), **dict(_about(job))} for job in jobs]
    requests = [_fields(job) for job in jobs]
    rows = [*_rows(parameters), *_rows(requests)] if known else _rows(parameters)
    headings = ("parameter", *(job.name for job in jobs))
    if rows:
        yield Table(headings, rows[:MOST_PARAMETERS])
        yield from more(len(rows) - MOST_PARAMETERS, "differences")
    elif len(known) == len(jobs):
        yield Paragraph("Their parameters, their commits and their requests are the same.")


def _about(job: Gathered) -> Iterator[tuple[str, str]]:
    """The platform, the commit and the hosts."""
    yield "platform", job.platform
    yield "commit", (job.description and job.description.git_commit) or ""
    yield from facts.machine(job)


SHOWN = ("hyperparameters.", "HyperParameters.", "environment.", "Environment.", "arguments")
"""Fields of requests that are shown as parameters."""


def _fields(job: Gathered) -> dict[str, str]:
    """The fields of the request that are not parameters, by path."""
    return {
        path: facts.text_of(value).replace(job.name, OWN_NAME)
        for path, value in fields(job.request)
        if not path.startswith(SHOWN)
    }


def _rows(columns: Sequence[dict[str, str]]) -> list[list[str]]:
    """A row for each name whose values differ between columns."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
    return [row for row in rows if len(set(row[1:])) > 1]


def _durations(jobs: Sequence[Gathered]) -> Table:
    found = [job.description for job in jobs]
    names = dict.fromkeys(name for one in found if one for name in one.phases)
    rows = [
        [
            "total",
            *("" if not job.view or job.view.seconds is None else span(job.view.seconds) for job in jobs),
        ],
        *([name, *(_phase(job, name) for job in jobs)] for name in names),
        ["goodput", *map(facts.goodput, jobs)],
        ["cost", *map(facts.cost, jobs)],
    ]
    return Table(("", *(job.name for job in jobs)), [row for row in rows if any(row[1:])])


def _phase(job: Gathered, name: str) -> str:
    took = job.description.phases.get(name) if job.description else None
    return "" if took is None else span(took)


def _failure(job: Gathered) -> Iterator[Block]:
    blocks = list(failure_blocks(job))
    if blocks:
        yield Paragraph(f"{job.name}:")
        yield from blocks


def _jobs(jobs: Sequence[Gathered]) -> Table:
    """Everything that is known about each job, side by side."""
    columns = [dict(facts.what_ran(job)) for job in jobs]
    names = dict.fromkeys(name for column in columns for name in column)
    return Table(
        ("", *(job.name for job in jobs)),
        [[name, *(column.get(name, "") for column in columns)] for name in names],
    )
