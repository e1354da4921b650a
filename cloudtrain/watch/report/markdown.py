"""A report as Markdown for GitHub and GitLab. Text that a job wrote is escaped, so that it never becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import singledispatch

from cloudtrain._display.markup import shortened
from cloudtrain.contract.text import escape_line, escape_text
from cloudtrain.watch.report.document import Block, Code, Document, Facts, Figure, Paragraph, Table

LONGEST = 500
LONGEST_CODE = 60_000
"""Characters."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#!|~&@$])")
"""Characters that can begin markup, HTML, a formula, or the mention of a user."""
_BEGINS_BLOCK = re.compile(r"^(\d*)([-+=.)])(?=[-=\s]|$)")
"""The beginning of a list, or of a line below a heading."""


def to_markdown(document: Document) -> str:
    """The whole document as Markdown."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle)]
    for section in document.sections:
        if section.blocks:
            parts += [f"## {_text(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _text(value: str, longest: int = LONGEST) -> str:
    """Any text as one line without markup."""
    line = escape_line(shortened(value, longest)).strip()
    return _BEGINS_BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", line))


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[_text(cell) for cell in headings], ["---"] * len(headings)]
    lines += [[_text(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@singledispatch
def _block(given: Block) -> str:
    raise TypeError(given)


@_block.register
def _(given: Facts) -> str:
    return _table(("", ""), given.rows)


@_block.register
def _(given: Table) -> str:
    return _table(given.headings, given.rows)


@_block.register
def _(given: Figure) -> str:
    return "\n".join(_fenced(given.text))


@_block.register
def _(given: Code) -> str:
    return "\n".join((f"{_text(given.title)}:", "", *_fenced(given.text[-LONGEST_CODE:])))


@_block.register
def _(given: Paragraph) -> str:
    text = _text(given.text, 2000)
    return f"**{given.kind.capitalize()}:** {text}" if given.kind else text


def _fenced(text: str) -> Iterator[str]:
    """The text between fences that are longer than any in the text."""
    shown = escape_text(text.strip("\n"))
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield shown
    yield fence
