"""Prints JSON, tables, labelled lines on stderr, and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import repeat, zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

WIDE = 200
"""The width of a table where there is no terminal: names and IDs are never cut, because users copy them."""

GAP = "  "
"""Between the columns of a table."""
LONGEST_PADDED = 80
"""The most characters that cells are padded to: one metric with a long name would make all rows long."""


def echo_json(value: Any) -> None:
    import click

    from cloudtrain.contract.text import to_json

    click.echo(to_json(value, indent=2))


def notify(label: str, message: str) -> None:
    """Print ``Warning: message`` on stderr: the label is ``Error``, ``Warning`` or ``Note``."""
    import click

    style: dict[str, Any] = {"fg": "red", "bold": True} if label == "Error" else {"fg": "yellow"}
    click.echo(f"{click.style(f'{label}:', **style)} {message}", err=True)


def table_console() -> Console:
    """The terminal, or a wide one for a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDE, highlight=False)


def shown(text: str, style: str = "") -> Text:
    """Text from a job or its platform, as one line without control characters."""
    from rich.text import Text

    from cloudtrain.contract.text import escape_line

    return Text(escape_line(text), style=style)


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Collection[str] = (),
    colours: Iterable[str | None] = repeat(None),
) -> None:
    """Print rows below dim headings, in one piece, without rich: it takes minutes for thousands of rows.

    Args:
        right: the headings of columns that are aligned to the right.
        colours: the colours of the rows.
    """
    import click

    from cloudtrain.contract.text import escape_line

    cells = [[escape_line(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
    align = [str.rjust if heading in right else str.ljust for heading in headings]
    lines = [
        GAP.join(
            side(cell, min(width, LONGEST_PADDED))
            for side, cell, width in zip(align, row, widths, strict=False)
        ).rstrip()
        for row in cells
    ]
    coloured = (click.style(line, fg=colour) for line, colour in zip(lines[1:], colours, strict=False))
    click.echo("\n".join((click.style(lines[0], dim=True), *coloured)))


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


@contextmanager
def count_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], object] | None]:
    """A progress bar on a terminal, from the first call of what it yields: with the number so far, and that of all."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        shown: list[tuple[Progress, TaskID]] = []

        def show(count: int, total: int) -> None:
            if not shown:
                from rich.console import Console

                progress = stack.enter_context(bars(Console(stderr=True)))
                shown.append((progress, progress.add_task(title, total=total, size="")))
            progress, task = shown[0]
            progress.update(task, completed=count, size=f"{count:,} of {total:,}")

        yield show


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
