"""Shows text from a job, which may contain anything, including control sequences that a terminal would execute."""

from __future__ import annotations

from collections.abc import Iterable

from cloudtrain._system.patterns import pattern
from cloudtrain._system.text import escape_line as escape_line, escape_text as escape_text, to_json as to_json

_COLOUR = pattern("(\x1b\\[[0-9;:]*m)")
"""The escape sequences that change nothing but colours."""
_NUMBER = pattern(r"\d+")


def is_text(text: str) -> bool:
    """Whether databases can store ``text``: it has no lone surrogates, as in names that are not UTF-8, and no NUL."""
    return "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def one_line(text: object) -> str:
    """A message of several lines, such as an error with its hint, as one line."""
    return " ".join(str(text).split())


def counted(number: int, what: str) -> str:
    """
    >>> counted(1023, "rank"), counted(2, "process")
    ('1,023 ranks', '2 processes')
    """
    plural = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{plural}"


def by_number(name: str) -> str:
    """A sort key that puts host-2 before host-10."""
    return _NUMBER.sub(lambda number: number[0].zfill(9), name)


def escape_except_colours(line: str) -> str:
    """A line of a log without control characters, except tabs and those that change colours."""
    return "".join(
        part if number % 2 else escape_text(part) for number, part in enumerate(_COLOUR.split(line))
    )


def print_line(line: str) -> None:
    """Print a line from a job, a platform or an engine, without its control characters except colours."""
    print(escape_except_colours(line))  # noqa: T201 - as the SageMaker SDK does


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)
