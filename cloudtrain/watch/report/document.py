"""The content of a report as data, before it becomes HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloudtrain._display.markup import Html


@dataclass(frozen=True)
class Facts:
    """Labels, each with its value."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """Rows of texts below headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    links: Sequence[str] = ()
    """The address that the first cell of each row links to; empty for no link."""


@dataclass(frozen=True)
class Figure:
    """A picture, and its content as text for Markdown."""

    picture: Html
    text: str


@dataclass(frozen=True)
class Code:
    """Text of several lines, shown as it is."""

    title: str
    text: str
    is_open: bool = False
    """Whether the text is unfolded. Folded text is not printed on paper."""


@dataclass(frozen=True)
class Paragraph:
    """A sentence or two."""

    text: str
    kind: str = ""
    """``failure`` or ``warning``, for the colour; empty for ordinary text."""


Block = Facts | Table | Figure | Code | Paragraph


@dataclass(frozen=True)
class Section:
    """Blocks below a heading. A section without blocks is left out."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A report as sections."""

    title: str
    subtitle: str
    sections: Sequence[Section]
