"""The table of ``cloudtrain list``: thousands of jobs, written in one piece."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import click

from cloudtrain._display.view import STATUS_COLOURS, duration
from cloudtrain.contract.text import escape_line
from cloudtrain.platforms import JobDescription

HEADINGS = ("JOB", "PLATFORM", "STATUS", "SUBMITTED", "TOOK", "WHY")
STATUS = HEADINGS.index("STATUS")
GAP = "  "
FILE_WIDTH = 200
"""The width of the table where there is no terminal."""
LEAST_WHY = 20
"""The width of the last column at least: names are never cut, because users copy them."""

Row = tuple[str, str, str, str, str, str]


def show_jobs(found: Sequence[tuple[str, str, JobDescription | str]]) -> None:
    """Print one row per job: its name, its platform, and its description or why that is unknown."""
    if not found:
        click.echo("No jobs yet. Submit one: cloudtrain submit train.py", err=True)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else FILE_WIDTH
    rows = [_row(*job) for job in found]
    colours = ["dim", *(_colour(description) for _, _, description in found)]
    click.echo("\n".join(_lines([HEADINGS, *rows], colours, width)))


def _row(name: str, platform: str, description: JobDescription | str) -> Row:
    if isinstance(description, str):
        return _plain(name), _plain(platform), "Unknown", "", "", _plain(description)
    seconds = duration(description, time.time())
    return (
        _plain(name),
        _plain(platform),
        str(description.status),
        f"{datetime.fromtimestamp(description.submitted_at):%Y-%m-%d %H:%M:%S}",
        "" if seconds is None else f"{seconds:.1f} s",
        _plain(_why(description)),
    )


def _why(description: JobDescription) -> str:
    """Why a job failed or ended early; for a job whose record is damaged, also what to do."""
    failure = description.failure
    if failure is None:
        return description.reason
    return f"{failure.summary()}. {failure.hint}" if description.reason else failure.summary()


def _colour(description: JobDescription | str) -> str:
    return "dim" if isinstance(description, str) else STATUS_COLOURS.get(description.status, "blue")


def _plain(text: str) -> str:
    """``text`` in one line, without characters that a terminal would execute."""
    return escape_line(text.strip())


def _lines(rows: Sequence[Row], colours: Iterable[str], width: int) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    indent = sum(widths) + len(widths) * len(GAP)
    room = max(width - indent, LEAST_WHY)
    for row, colour in zip(rows, colours, strict=True):
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=False)]
        if row is rows[0]:
            cells = [_styled(cell, colour) for cell in cells]
        else:
            cells[STATUS] = _styled(cells[STATUS], colour)
        why = row[-1]
        first, *others = [why] if len(why) <= room else textwrap.wrap(why, room)
        yield f"{GAP.join(cells)}{GAP}{_styled(first, colour) if row is rows[0] else first}".rstrip()
        yield from (f"{'':{indent}}{other}" for other in others)


def _styled(text: str, colour: str) -> str:
    """``text`` in a colour. click removes it where there is no terminal."""
    return click.style(text, dim=True) if colour == "dim" else click.style(text, fg=colour)
