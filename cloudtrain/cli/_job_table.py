"""The table of ``cloudtrain list``, which may have thousands of jobs, and is written in one piece."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING

import click

from cloudtrain._display.brief import brief
from cloudtrain._display.colours import STATUS_COLOURS
from cloudtrain._display.steps import span
from cloudtrain.cli._output import GAP
from cloudtrain.contract.text import escape_line

if TYPE_CHECKING:
    from cloudtrain.history.outlines import Ended
    from cloudtrain.platforms import JobDescription

HEADINGS = ("JOB", "PLATFORM", "STATUS", "SUBMITTED", "TOOK", "PROGRESS", "COST", "WHY")
STATUS = HEADINGS.index("STATUS")
SOMETIMES = [HEADINGS.index(heading) for heading in ("PROGRESS", "COST")]
"""Columns that are omitted if empty: few scripts report their number of steps, and few users set prices."""
FILE_WIDTH = 200
"""The width of the table where there is no terminal."""
LEAST_WHY = 20
"""The least width of the last column. Names are never cut, because users copy them."""

Row = tuple[str, ...]


def show_jobs(found: Sequence[tuple[str, str, JobDescription | Ended | Exception]]) -> None:
    """Print one row per job: its name, its platform, and its description, its recorded end, or an error."""
    if not found:
        click.echo("No jobs yet. Submit one: cloudtrain submit train.py", err=True)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else FILE_WIDTH
    colours, cells = zip(*(_row(*job) for job in found), strict=True)
    rows: list[Row] = [HEADINGS, *cells]
    empty = {column for column in SOMETIMES if not any(map(itemgetter(column), rows[1:]))}
    if empty:
        rows = [*map(itemgetter(*(column for column in range(len(HEADINGS)) if column not in empty)), rows)]
    click.echo("\n".join(_lines(rows, colours, width)))


def _row(name: str, platform: str, found: JobDescription | Ended | Exception) -> tuple[str, Row]:
    """The colour and the cells of a job's row."""
    shown = brief(found)
    at = shown.submitted_at
    return STATUS_COLOURS.get(shown.status, "dim" if at is None else "blue"), (
        escape_line(name),
        escape_line(platform),
        shown.status,
        "" if at is None else datetime.fromtimestamp(at).isoformat(" ", "seconds"),
        "" if shown.seconds is None else span(shown.seconds),
        shown.progress,
        shown.cost and escape_line(shown.cost),
        shown.why and escape_line(shown.why.strip()),
    )


def _lines(rows: Sequence[Row], colours: Iterable[str], width: int) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    indent = sum(widths) + len(widths) * len(GAP)
    room = max(width - indent, LEAST_WHY)
    line = GAP.join([*(f"%-{size}s" for size in widths), "%s"])
    heading = [_styled(cell.ljust(size), "dim") for cell, size in zip(rows[0], (*widths, 0), strict=True)]
    yield GAP.join(heading)
    for (*cells, why), colour in zip(rows[1:], colours, strict=True):
        cells[STATUS] = _styled(cells[STATUS].ljust(widths[STATUS]), colour)
        if len(why) <= room:
            yield (line % (*cells, why)).rstrip()
            continue
        first, *others = textwrap.wrap(why, room)
        yield line % (*cells, first)
        yield from (f"{'':{indent}}{other}" for other in others)


@cache
def _styled(text: str, colour: str) -> str:
    """``text`` in a colour. click removes it where there is no terminal."""
    return click.style(text, dim=True) if colour == "dim" else click.style(text, fg=colour)
