"""HTML from data: everything that is not HTML yet is escaped, so that no text from a job is interpreted as HTML."""

from __future__ import annotations

import html
from urllib.parse import urlsplit

from cloudtrain.contract.text import escape_line, escape_text

LONGEST = 500
"""The most characters of a value that are shown. The Python API returns all of them."""


class Html(str):
    """Text that is HTML."""

    __slots__ = ()

    def __html__(self) -> str:
        """Called by template engines: the text needs no escaping."""
        return self


def line(text: object, longest: int = LONGEST) -> Html:
    """Any text, as one line without control characters."""
    return Html(html.escape(escape_line(shortened(str(text), longest))))


def block(text: str, longest: int) -> Html:
    """Any text of several lines: its end, if it is too long."""
    if len(text) > longest:
        text = f"…{text[-longest:]}"
    return Html(html.escape(escape_text(text.strip("\n"))))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An HTML element. Children that are not HTML are escaped, and shown in one line.

    >>> element("b", "1 < 2", class_="big")
    '<b class="big">1 &lt; 2</b>'

    Args:
        attributes: attributes, with underscores in their names: ``aria_label``. Values that are not HTML are escaped.
    """
    given = "".join(
        f' {name.strip("_").replace("_", "-")}="{_html(value)}"' for name, value in attributes.items()
    )
    inner = "".join(map(_html, children))
    return Html(f"<{tag}{given}>{inner}</{tag}>")


def _html(value: object) -> Html:
    return value if isinstance(value, Html) else line(value)


def link(uri: str) -> Html:
    """The URI, with a link if it is the address of a web page; other URIs, such as ``javascript:``, are only shown."""
    if is_web_page(uri):
        return element("a", uri, href=uri, target="_blank", rel="noopener noreferrer")
    return element("code", uri)


def is_web_page(uri: str) -> bool:
    """Whether a browser opens ``uri`` as a page, and does nothing else with it."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    is_plain = uri == escape_line(uri) and not any(character.isspace() for character in uri)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and is_plain and len(uri) <= LONGEST


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


CARD = ".cloudtrain-job.cloudtrain-job"
"""The class twice, for precedence over the styles of the page, such as JupyterLab's for ``pre code``."""

RULES = {
    "": """font:13px/1.5 system-ui,sans-serif;color:inherit;border:1px solid rgba(128,128,128,.4);border-left:4px solid
#888;border-radius:4px;padding:8px 12px;margin:4px 0;max-width:900px;overflow-wrap:anywhere;text-align:left""",
    ".is-running": "border-left-color:#2f81f7",
    ".is-completed": "border-left-color:#2da44e",
    ".is-failed": "border-left-color:#e5534b",
    ".is-stopped": "border-left-color:#c69026",
    " p": "margin:4px 0;padding:0",
    " ul": "margin:2px 0;padding-left:1.4em",
    " dl": """display:grid;grid-template-columns:max-content minmax(0,1fr);align-items:baseline;gap:1px 14px;
margin:6px 0 0;padding:0""",
    " dt": "float:none;width:auto;max-width:22ch;font-weight:400;opacity:.75;margin:0;padding:0",
    " dd": "float:none;width:auto;margin:0;padding:0",
    " code": "font:12px/1.45 ui-monospace,monospace;color:inherit",
    " pre": """font:12px/1.45 ui-monospace,monospace;color:inherit;background:none;margin:0;padding:4px 0;
max-height:320px;overflow:auto;white-space:pre-wrap""",
    " table": "border-collapse:collapse;margin:0;font:inherit;color:inherit;table-layout:auto",
    " tr": "background:none;border:0",
    " :is(th,td)": """text-align:left;vertical-align:top;padding:2px 14px 2px 0;border:0;max-width:40ch;
white-space:normal;background:none""",
    " th": "font-weight:400;opacity:.75",
    " summary": "cursor:pointer",
    " a": "color:inherit;text-decoration:underline",
    " svg": "vertical-align:middle;margin-left:10px;fill:none;stroke:#2f81f7;stroke-width:1.5",
    " circle": "fill:#2f81f7;stroke:none",
    " progress": "width:160px;height:10px;vertical-align:middle;margin-right:8px",
    " .dim": "opacity:.75",
    " .number": "font-variant-numeric:tabular-nums;display:inline-block;min-width:9ch",
    " .failure": "background:rgba(229,83,75,.12);border-radius:4px;padding:4px 10px;margin-top:8px",
    " .warning": "background:rgba(198,144,38,.15);border-radius:4px;padding:4px 10px;margin-top:8px",
}

STYLE = Html("".join(f"{CARD}{part}{{{rule}}}" for part, rule in RULES.items()).replace("\n", " "))
