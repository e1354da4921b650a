"""A job as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudtrain._display.facts import facts
from cloudtrain._display.view import JobView
from cloudtrain.contract.text import escape_line, escape_text


def text(view: JobView, notes: Sequence[tuple[str, str]] = ()) -> str:
    """The facts about a job, as ``cloudtrain describe`` prints them, without colours."""
    return "\n".join(_lines(view, notes))


def _lines(view: JobView, notes: Sequence[tuple[str, str]]) -> Iterator[str]:
    description = view.description
    yield escape_line(f"Job {description.name} on {description.platform}")
    for label, value in facts(view):
        yield f"{escape_line(label):<13} {escape_line(value)}"
    for warning in description.warnings:
        yield escape_line(f"warning: {warning}")
    failure = description.failure
    if failure:
        yield ""
        yield escape_line(f"{failure.summary()}  [{failure.failure_class}]")
        if failure.hint:
            yield escape_text(failure.hint)
        detail = failure.stacks or failure.traceback or "\n".join(failure.log_tail[-10:])
        if detail:
            yield f"\n{escape_text(detail.rstrip())}"
    for note in notes:
        yield escape_line(" ".join(note))
