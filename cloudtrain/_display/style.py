"""The style of a card.

A card does not know whether the page around it is light or dark: its text has the colour of the page, and the few other
colours are distinct on both. No text depends on a colour alone.
"""

from cloudtrain._display.markup import Html

CARD = ".cloudtrain-job.cloudtrain-job"
"""The class twice: the style of the page, such as JupyterLab's for ``pre code``, must not win."""

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
