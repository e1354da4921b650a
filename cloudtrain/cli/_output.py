"""Prints JSON, tables, labelled lines on stderr, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

WIDE = 200
"""The width of a table where there is no terminal: names and IDs are never cut, because users copy them."""


def echo_json(value: Any) -> None:
    from cloudtrain.contract.text import to_json

    click.echo(to_json(value, indent=2))


def notify(label: str, message: str) -> None:
    """Print ``Warning: message`` on stderr: the label is ``Error``, ``Warning`` or ``Note``."""
    style: dict[str, Any] = {"fg": "red", "bold": True} if label == "Error" else {"fg": "yellow"}
    click.echo(f"{click.style(f'{label}:', **style)} {message}", err=True)


def table_console() -> Console:
    """The terminal, or a wide one for a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDE, highlight=False)


def shown(text: str, style: str = "") -> Text:
    """One line that a job, or its platform, may have written."""
    from rich.text import Text

    from cloudtrain.contract.text import escape_line

    return Text(escape_line(text), style=style)


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    styles: Iterable[str] = repeat(""),
) -> None:
    """Print rows below dim headings.

    Args:
        right: the headings of columns that are aligned to the right.
        styles: of the rows.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="right" if heading in right else "left")
    for row, style in zip(rows, styles, strict=False):
        table.add_row(*map(shown, row), style=style)
    table_console().print(table)


def bars(console: Console) -> Progress:
    """A live display of tasks: a spinner, a bar, the number of bytes if known, and the time."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description:<13}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[size]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def show_bytes(progress: Progress, task: TaskID, done: int, total: int | None) -> None:
    """Update the bar of a task that moves bytes; do nothing if neither count is known."""
    from rich.filesize import decimal

    if done or total:
        size = decimal(done) + (f" of {decimal(total)}" if total else "")
        progress.update(task, completed=done, total=total or None, size=size)


@contextmanager
def bytes_bar(
    title: str, total: int | None = None, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """A progress bar, if stderr is a terminal. Yields the function to call with each number of bytes moved."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda count: None
        return
    with bars(console) as progress:
        task = progress.add_task(title, total=total, size="")
        moved = 0

        def add(count: int) -> None:
            nonlocal moved
            moved += count
            show_bytes(progress, task, moved, total)

        yield add
