"""Several jobs as a table of HTML: a pure function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudtrain._display.card import LONGEST_NAME, MARKS, span
from cloudtrain._display.markup import STYLE, Html, element, line, shortened
from cloudtrain._display.view import JobView

MOST_METRICS = 4
HEADINGS = ("state", "job", "phase", "took", "metrics", "why")


def table(views: Sequence[JobView], count: int) -> Html:
    """A row for each job.

    Args:
        count: the number of all jobs, of which ``views`` are the first.
    """
    head = element("tr", *(element("th", heading, scope="col") for heading in HEADINGS))
    body = [element("tr", *_cells(view)) for view in views]
    return element(
        "div",
        element("style", STYLE),
        element("table", element("thead", head), element("tbody", *body)),
        *([element("p", f"and {count - len(views):,} more")] if count > len(views) else []),
        class_="cloudtrain-job",
        role="group",
        aria_label=f"{count:,} jobs",
    )


def _cells(view: JobView) -> Iterator[Html]:
    sign, _ = MARKS[view.description.status]
    state, name, *others = _row(view)
    yield element("td", element("span", sign, aria_hidden="true"), Html(" "), element("b", state))
    yield element("td", element("code", name))
    for text in others:
        yield element("td", line(text, LONGEST_NAME))


def _row(view: JobView) -> Iterator[str]:
    description = view.description
    yield str(description.status)
    yield description.name
    yield description.phase or ""
    yield "" if view.seconds is None else span(view.seconds)
    metrics = list(description.metrics.items())[:MOST_METRICS]
    yield ", ".join(f"{shortened(name, LONGEST_NAME)} {value:g}" for name, value in metrics)
    yield description.failure.summary() if description.failure else description.reason
