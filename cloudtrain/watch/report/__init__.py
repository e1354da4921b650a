"""Reports: one file about a job, or about the differences between several, to keep or to send to others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloudtrain.errors import StorageError
from cloudtrain.job import Job
from cloudtrain.watch.report.comparison import comparison
from cloudtrain.watch.report.content import report
from cloudtrain.watch.report.gather import Gathered, gather, gather_from
from cloudtrain.watch.report.markdown import to_markdown
from cloudtrain.watch.report.page import to_html

__all__ = ["Gathered", "gather", "gather_from", "render", "write", "write_report"]


def write_report(path: str | Path, *jobs: Job) -> Path:
    """Write a report about the present state of a job, or a comparison of several, and return the path of the file.

    Args:
        path: with the suffix ``.md``, the file is Markdown, otherwise a self-contained HTML page.
        jobs: one job for a report, several for a comparison.

    Raises:
        StorageError: the file cannot be written.
    """
    path = Path(path)
    gathered = [gather_from(job.name, job.platform) for job in jobs]
    write(path, render(gathered, markdown=path.suffix == ".md"))
    return path


def render(jobs: Sequence[Gathered], *, markdown: bool = False) -> str:
    """The report of one job or the comparison of several, as a self-contained HTML page or as Markdown."""
    document = report(jobs[0]) if len(jobs) == 1 else comparison(jobs)
    return to_markdown(document) if markdown else to_html(document)


def render_sweep(name: str, *, markdown: bool = False) -> str:
    """The report of a sweep of this machine. Raises JobNotFound, StorageError."""
    from cloudtrain.watch.report.sweep import sweep_report
    from cloudtrain.watch.sweeps import look_at_sweep

    document = sweep_report(look_at_sweep(name))
    return to_markdown(document) if markdown else to_html(document)


def write(path: Path, text: str) -> None:
    """Write a report. Raises StorageError."""
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
