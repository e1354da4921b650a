"""Parts of the screen: lines of text that fit its width. Text that a job wrote is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from cloudtrain.contract.text import escape_line

GAP = 2
LEAST = 16
"""The least width to which a column is cut."""
PHASE_COLOURS = {
    "fetch": "blue",
    "install": "magenta",
    "launch": "cyan",
    "train": "green",
    "upload": "yellow",
}


@dataclass(frozen=True)
class Column:
    """A column of a table. If the screen is too narrow, the columns with the highest ``rank`` are left out."""

    heading: str
    rank: int = 0
    right: bool = False
    most: int = 1000
    """Longer cells are cut."""


def safe(value: str, style: str = "") -> Text:
    """Escape a line that a job or its platform may have written."""
    return Text(escape_line(value), style=style, no_wrap=True, overflow="ellipsis")


def joined(parts: Sequence[Text | str], gap: str = "  ") -> Text:
    """Join the parts that are not empty into one line."""
    return Text(gap, no_wrap=True, overflow="ellipsis").join(
        [part if isinstance(part, Text) else Text(part) for part in parts if part]
    )


def fitted(line: Text, width: int) -> Text:
    """``line`` cut to the width."""
    line = line.copy()
    line.truncate(width, overflow="ellipsis")
    return line


def table(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> tuple[Text, list[Text]]:
    """The headings and the rows, at most ``width`` wide. Columns that are empty in all rows are left out.

    The first column is cut if need be, and so is the last one, at the edge of the screen.
    """
    sizes = [
        min(max(cell_len(row[number].plain) for row in rows), column.most) if rows else 0
        for number, column in enumerate(columns)
    ]
    sizes = [found and max(found, len(column.heading)) for found, column in zip(sizes, columns, strict=True)]
    shown = [number for number, found in enumerate(sizes) if found or not number]

    def spare() -> int:
        """The width that remains for the first column."""
        others = sum(min(sizes[n], LEAST) if n == len(columns) - 1 else sizes[n] for n in shown[1:])
        return width - others - GAP * (len(shown) - 1)

    while spare() < min(sizes[0], LEAST) and any(columns[n].rank for n in shown):
        shown.remove(max(shown, key=lambda n: columns[n].rank))
    sizes[0] = max(min(sizes[0], spare()), 4)
    headings = [Text(column.heading, style="dim") for column in columns]
    lines = [_row([(row[n], sizes[n], columns[n].right) for n in shown], width) for row in (headings, *rows)]
    return lines[0], lines[1:]


def _row(cells: Sequence[tuple[Text, int, bool]], width: int) -> Text:
    line = Text(no_wrap=True, overflow="crop")
    for number, (cell, size, right) in enumerate(cells):
        if number:
            line.append(" " * GAP)
        cell = fitted(cell, size)
        padding = " " * (size - cell_len(cell.plain))
        line.append_text(Text(padding).append_text(cell) if right else cell.append(padding))
    line.truncate(width)
    return line


def bar(share: float, width: int) -> str:
    """A bar that is filled up to ``share``, from 0 to 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "█" * filled + "░" * (width - filled)


def segments(parts: Sequence[tuple[str, float]], width: int) -> Text:
    """Draw phases in proportion to their durations, each in its colour, with its name if that fits."""
    line = Text(no_wrap=True, overflow="crop")
    total = sum(seconds for _, seconds in parts) or 1.0
    at = 0.0
    for number, (name, seconds) in enumerate(parts):
        start, at = at, at + seconds
        cells = round(at / total * width) - round(start / total * width)
        border = "▏" if number and name else " "
        label = name if cell_len(name) + 1 <= cells else border
        line.append(
            set_cell_size(escape_line(label), cells),
            style=f"not dim black on {_colour(name)}" if name else "dim",
        )
    return line


def _colour(phase: str) -> str:
    return PHASE_COLOURS.get(phase.partition("-")[0], "white")


def clock(time: float) -> str:
    """The local time, for example ``14:03:05``."""
    try:
        return f"{datetime.fromtimestamp(time):%H:%M:%S}"
    except (OverflowError, ValueError, OSError):  # a job's clock can be anything
        return "?"


def axis(start: float, end: float, width: int) -> str:
    """The times at both ends of a time axis, ``14:03  14:13``; if they do not fit, its length, ``←10 min→``."""
    first, last = clock(start)[:5], clock(end)[:5]
    if width >= 12:
        return f"{first}{last:>{width - len(first)}}"
    seconds = end - start
    length = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return f"←{length if seconds < 6000 else f'{seconds / 3600:.0f} h'}→"


def size(count: float) -> str:
    """A number of bytes in GB."""
    gigabytes = count / 1e9
    return f"{gigabytes:.1f}" if gigabytes < 10 else f"{gigabytes:,.0f}"
