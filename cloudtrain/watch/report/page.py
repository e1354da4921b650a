"""A report as one self-contained HTML page, which loads nothing and runs no script.

`cloudtrain._display.markup` escapes everything that a job or a platform may have written.
"""

from __future__ import annotations

from functools import singledispatch

from cloudtrain._display.markup import Html, block, element, is_web_page, line, link
from cloudtrain.watch.report.document import Block, Code, Document, Facts, Figure, Paragraph, Section, Table

LONGEST_TITLE = 200
LONGEST_CODE = 60_000
"""Characters."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The browser may do nothing except show the page."""


def to_html(document: Document) -> str:
    """The whole page."""
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
    )
    title = element("title", line(document.title, LONGEST_TITLE))
    body = element(
        "main",
        element("h1", line(document.title, LONGEST_TITLE)),
        element("p", document.subtitle, class_="dim"),
        *(section_html(section) for section in document.sections if section.blocks),
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}{title}{element("style", STYLE)}</head>'
        f"<body>{body}</body></html>\n"
    )


def section_html(section: Section) -> Html:
    """A section with its heading."""
    return element("section", element("h2", section.title), *map(_block, section.blocks))


@singledispatch
def _block(given: Block) -> Html:
    raise TypeError(given)


@_block.register
def _(given: Facts) -> Html:
    rows = (
        Html(element("dt", label) + element("dd", link(value) if is_web_page(value) else line(value)))
        for label, value in given.rows
    )
    return element("dl", *rows)


@_block.register
def _(given: Table) -> Html:
    head = element("tr", *(element("th", heading, scope="col") for heading in given.headings))
    names = [name for name, *_ in given.rows]
    if given.links:
        pairs = zip(names, given.links, strict=True)
        names = [element("a", name, href=to) if to else name for name, to in pairs]
    rows = (
        element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in cells))
        for name, (_, *cells) in zip(names, given.rows, strict=True)
    )
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="wide", tabindex=0)


@_block.register
def _(given: Figure) -> Html:
    return element("figure", given.picture)


@_block.register
def _(given: Code) -> Html:
    opened = {"open": ""} if given.is_open else {}
    text = element("pre", block(given.text, LONGEST_CODE), tabindex=0)
    return element("details", element("summary", given.title), text, **opened)


@_block.register
def _(given: Paragraph) -> Html:
    kind = {"class_": given.kind} if given.kind else {}
    return element("p", line(given.text, 2000), **kind)


STYLE = Html("""
@media screen{:root{color-scheme:light dark}}
:root{--ink:#1f2328;--paper:#fff;--soft:#59636e;--rule:#d1d9e0;
--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#0e8a8a;--c7:#cf222e}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--soft:#9198a1;--rule:#3d444d;
--c0:#58a6ff;--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;--c4:#f778ba;--c5:#d29922;--c6:#39c5cf;--c7:#ff7b72}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0}
main{max-width:960px;margin:0 auto;padding:16px;overflow-wrap:anywhere}
h1{font-size:24px;margin:8px 0 0}h2{font-size:18px;margin:28px 0 8px;border-bottom:1px solid var(--rule)}
.dim{color:var(--soft);margin:0}
dl{display:grid;grid-template-columns:minmax(6em,max-content) minmax(0,1fr);gap:2px 16px;margin:0}
dt{color:var(--soft)}dd{margin:0}
.wide{overflow-x:auto}table{border-collapse:collapse}
th,td{text-align:left;vertical-align:top;padding:3px 16px 3px 0;border-bottom:1px solid var(--rule);
font-variant-numeric:tabular-nums;font-weight:400;min-width:4em;max-width:32em}
th{overflow-wrap:break-word /* prose: ok */}thead th{color:var(--soft)}
pre,code{font:13px/1.45 ui-monospace,monospace}pre{white-space:pre-wrap;margin:4px 0}
details{margin:6px 0}summary{cursor:pointer}a{color:var(--c0)}
p.failure,p.warning{border-left:4px solid var(--c7);padding:4px 12px;margin:8px 0}p.warning{border-color:var(--c5)}
figure{margin:12px 0}svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}svg text.name{fill:var(--ink);font-weight:600}
.grid{stroke:var(--rule);stroke-width:1}.curve{fill:none;stroke-width:1.5;stroke-linejoin:round}
.spread{stroke:none;opacity:.18}.rest{opacity:.35}.middle{opacity:.6}
svg text.over{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.c0{stroke:var(--c0);fill:var(--c0)}.c1{stroke:var(--c1);fill:var(--c1)}.c2{stroke:var(--c2);fill:var(--c2)}
.c3{stroke:var(--c3);fill:var(--c3)}.c4{stroke:var(--c4);fill:var(--c4)}.c5{stroke:var(--c5);fill:var(--c5)}
.c6{stroke:var(--c6);fill:var(--c6)}.c7{stroke:var(--c7);fill:var(--c7)}
svg .curve{fill:none}svg rect{stroke:none}
@media print{main{max-width:none;padding:0}
h2{break-after:avoid}figure,tr,p{break-inside:avoid}rect,path{print-color-adjust:exact}}
""")
