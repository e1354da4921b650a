"""Progress bars for transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


def bars(console: Console) -> Progress:
    """A live display of tasks: a spinner, a bar, the number of bytes if known, and the time."""
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
    if done or total:
        size = decimal(done) + (f" of {decimal(total)}" if total else "")
        progress.update(task, completed=done, total=total or None, size=size)


@contextmanager
def bytes_bar(
    title: str, total: int | None = None, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """A progress bar, if stderr is a terminal. Yields the function to call with each number of bytes moved."""
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
