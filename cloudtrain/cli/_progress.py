"""Bars for bytes on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def bars(console: Console) -> Progress:
    """A live display of tasks: a spinner, a bar, bytes where they are known, the time."""
    return Progress(
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description:<13}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


@contextmanager
def bytes_bar(
    title: str, total: int | None = None, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show bytes as they move, on a terminal; the context gives the function to call with each count."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda count: None
        return
    with bars(console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
