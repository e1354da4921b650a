"""HTML from data: whatever is not HTML already is escaped, so that no text of a job becomes part of the page."""

from __future__ import annotations

import html
from urllib.parse import urlsplit

from cloudtrain.contract.text import escape_line, escape_text

LONGEST = 500
"""Characters of one value. The Python API has all of it."""


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def line(text: object, longest: int = LONGEST) -> Html:
    """Any text, as one line without control characters."""
    return Html(html.escape(escape_line(shortened(str(text), longest))))


def block(text: str, longest: int) -> Html:
    """Any text of several lines: its end, if it is too long."""
    if len(text) > longest:
        text = f"…{text[-longest:]}"
    return Html(html.escape(escape_text(text.strip("\n"))))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An HTML element. Children that are not HTML are shown as they are, in one line.

    >>> element("b", "1 < 2", class_="big")
    '<b class="big">1 &lt; 2</b>'

    Args:
        attributes: by their names, with underscores: ``aria_label``. Values that are not HTML are escaped.
    """
    given = "".join(
        f' {name.strip("_").replace("_", "-")}="{_html(value)}"' for name, value in attributes.items()
    )
    inner = "".join(map(_html, children))
    return Html(f"<{tag}{given}>{inner}</{tag}>")


def _html(value: object) -> Html:
    return value if isinstance(value, Html) else line(value)


def link(uri: str) -> Html:
    """The URI, with a link if it is the address of a web page; ``javascript:`` and all others are only shown."""
    if is_web_page(uri):
        return element("a", uri, href=uri, target="_blank", rel="noopener noreferrer")
    return element("code", uri)


def is_web_page(uri: str) -> bool:
    """Whether ``uri`` can be opened in a browser, and does nothing else."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    is_plain = uri == escape_line(uri) and not any(character.isspace() for character in uri)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and is_plain and len(uri) <= LONGEST


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
