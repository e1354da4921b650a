"""The style of a card.

A card does not know whether the page around it is light or dark: its text has the colour of the page, and the few other
colours are distinct on both. No text depends on a colour alone.
"""

from cloudtrain._display.markup import Html

STYLE = Html(
    """
.cloudtrain-job{font:13px/1.5 system-ui,sans-serif;color:inherit;border:1px solid rgba(128,128,128,.4);
border-left:4px solid #888;border-radius:4px;padding:8px 12px;margin:4px 0;max-width:900px;overflow-wrap:anywhere;
text-align:left}
.cloudtrain-job.is-running{border-left-color:#2f81f7}.cloudtrain-job.is-completed{border-left-color:#2da44e}
.cloudtrain-job.is-failed{border-left-color:#e5534b}.cloudtrain-job.is-stopped{border-left-color:#c69026}
.cloudtrain-job p,.cloudtrain-job ul{margin:4px 0;padding:0}.cloudtrain-job ul{padding-left:1.2em}
.cloudtrain-job dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:1px 14px;margin:6px 0 0;padding:0}
.cloudtrain-job dt{max-width:22ch;font-weight:400;opacity:.75;margin:0;padding:0}
.cloudtrain-job dd{margin:0;padding:0}
.cloudtrain-job code,.cloudtrain-job pre{font:12px/1.45 ui-monospace,monospace;color:inherit;background:none;
padding:0;margin:0}
.cloudtrain-job pre{max-height:320px;overflow:auto;white-space:pre-wrap;padding:4px 0}
.cloudtrain-job summary{cursor:pointer}.cloudtrain-job a{color:inherit;text-decoration:underline}
.cloudtrain-job svg{vertical-align:middle;margin-left:10px;fill:none;stroke:#2f81f7;stroke-width:1.5}
.cloudtrain-job circle{fill:#2f81f7;stroke:none}
.cloudtrain-job progress{width:160px;height:10px;vertical-align:middle;margin-right:8px}
.cloudtrain-job .dim{opacity:.75}.cloudtrain-job .number{font-variant-numeric:tabular-nums;display:inline-block;
min-width:9ch}
.cloudtrain-job .failure{background:rgba(229,83,75,.12);border-radius:4px;padding:4px 10px;margin-top:8px}
.cloudtrain-job .warning{background:rgba(198,144,38,.15);border-radius:4px;padding:4px 10px;margin-top:8px}
""".replace("\n", "")
)
