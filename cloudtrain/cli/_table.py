"""Tables for terminals, and for files and pipes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

WIDE = 200
"""The width of a table where there is no terminal: names and IDs are never cut, because users copy them."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print rows below dim headings.

    Args:
        right: the headings of columns that are aligned to the right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from cloudtrain.contract.text import escape_line

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=True, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*(Text(escape_line(cell)) for cell in row))
    console = Console(highlight=False)
    (console if console.is_terminal else Console(width=WIDE, highlight=False)).print(table)
