"""The card of a job in a notebook: shown once for a value, or updated in place while a caller waits for the job."""

from __future__ import annotations

import contextlib
import contextvars
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudtrain._display.view import JobView, look_at, summary_of
from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms import JobDescription, Platform, Summaries


def kernel_shell() -> Any:
    """The shell of the kernel: of Jupyter, VS Code, Colab, papermill, nbconvert; None in any other process."""
    shell = _shell()
    return shell if getattr(shell, "kernel", None) is not None else None


def is_terminal() -> bool:
    """Whether this is IPython on a terminal, which shows plain text only."""
    return _shell() is not None and kernel_shell() is None


def publish(shell: Any, data: Mapping[str, str], display_id: str, *, update: bool) -> None:
    """Show ``data``, in one or more formats, in the output of the current cell, or update the output with this ID."""
    shell.display_pub.publish(dict(data), {}, transient={"display_id": display_id}, update=update)


def _shell() -> Any:
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython else None


SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
PAUSE_SHARE = 0.02
"""The pause between two updates, within these bounds, as a share of the time since the card was created."""
MOST_ROWS = 50
"""The most jobs of a table: each is queried."""
SLOW_PAUSES = 10
"""How many pauses lie between two queries for states, or for metrics without `Summaries`: some cost money."""

_live: dict[tuple[int, str, str], LiveCard] = {}
"""The live cards, by thread, platform and job: a wait within another wait shares its card."""
_cells: dict[tuple[str, str], int] = {}
"""The number of the last cell that waited for a job, by platform and job."""


def mime_bundle(platform: Platform, job_name: str) -> dict[str, str]:
    """The job as a card of HTML, and as plain text. Empty where its ``repr`` is enough.

    It is enough on a terminal, and where the same cell already shows the job because it has waited for it.
    """
    shell = kernel_shell()
    is_shown = shell is not None and _cells.get((platform.name, job_name)) == shell.execution_count
    if is_terminal() or is_shown:
        return {}
    try:
        return bundle(look_at(platform, job_name))
    except CloudtrainError as error:
        from cloudtrain._display.card import problem_card
        from cloudtrain.contract.text import escape_line

        text = escape_line(f"Job {job_name} on {platform.name}: {error.message}")
        return {
            "text/html": problem_card(job_name, platform.name, error.message, error.hint),
            "text/plain": text,
        }


def table_bundle(jobs: Sequence[tuple[Platform, str]]) -> dict[str, str]:
    """Several jobs, by platform and name, as a table. Empty on a terminal, where the ``repr`` of the list is enough."""
    if is_terminal():
        return {}
    from cloudtrain._display.card import table

    views = []
    for platform, job_name in jobs[:MOST_ROWS]:
        with contextlib.suppress(CloudtrainError):  # a job that no longer exists
            views.append(JobView(platform.describe(job_name), time.time()))
    return {"text/html": table(views, len(jobs))}


def bundle(view: JobView, notes: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    from cloudtrain._display.card import card
    from cloudtrain._display.facts import text

    return {"text/html": card(view, notes), "text/plain": text(view, notes)}


@contextlib.contextmanager
def live_card(platform: Platform, job_name: str) -> Iterator[LiveCard | None]:
    """Show the card of a job while the body waits for it. None if this process is not the kernel of a notebook.

    The last state of the card stays in the notebook. An interrupt prints that the job continues, and how to attach.
    """
    shell = kernel_shell()
    key = (threading.get_ident(), platform.name, job_name)
    if shell is None or key in _live:
        yield _live.get(key)
        return
    card = _live[key] = LiveCard(shell, platform, job_name)
    _cells[platform.name, job_name] = shell.execution_count
    try:
        yield card
    except KeyboardInterrupt as error:
        card.finish()
        # IPython shows these lines instead of the traceback, which has only frames of cloudtrain
        error._render_traceback_ = lambda: ["KeyboardInterrupt", *map(" ".join, card.left)]  # type: ignore[attr-defined]
        raise
    except BaseException:
        card.finish()
        raise
    else:
        card.finish()
    finally:
        del _live[key]


class LiveCard:
    """The card of a job in the output of a cell, updated in place."""

    def __init__(self, shell: Any, platform: Platform, job_name: str) -> None:
        self.left: Sequence[tuple[str, str]] = ()
        """How to continue with a job whose card is no longer live: texts, each with the code for it."""
        self._shell = shell
        self._platform = platform
        self._job_name = job_name
        self._id = f"cloudtrain-{secrets.token_hex(8)}"
        self._began = time.monotonic()
        self._view: JobView | None = None
        self._shown_at = self._asked_at = float("-inf")
        self._is_finished = False
        self._lock = threading.Lock()

    @property
    def pause(self) -> float:
        """Seconds between two updates."""
        return min(max(PAUSE_SHARE * (time.monotonic() - self._began), SHORTEST_PAUSE), LONGEST_PAUSE)

    def show(self, description: JobDescription) -> None:
        """Show this state of the job, unless the last update was a moment ago and little can have changed."""
        with self._lock:
            if self._is_finished:
                return
            last = self._view.description if self._view else None
            changed = last is None or (last.status, last.phase) != (description.status, description.phase)
            if changed or description.status.is_final or time.monotonic() - self._shown_at >= self.pause:
                self._show(self._look(description, changed=changed))

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        """Update the card from a thread, while the body does something else, such as printing the job's output."""
        over = threading.Event()
        context = contextvars.copy_context()  # the kernel finds the cell in it
        thread = threading.Thread(target=context.run, args=(self._update, over), name="job-card", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def finish(self) -> None:
        """Show the last state. If the job continues, print how to attach to it."""
        description = None
        with contextlib.suppress(CloudtrainError):
            description = self._platform.describe(self._job_name)
        with self._lock:
            self._is_finished = True
            view = self._view
            if description and not (view and view.description == description):
                view = self._look(description, changed=True)
            if view and not view.description.status.is_final:
                self.left = _how_to_attach(self._job_name)
            if view and (self.left or view is not self._view):
                self._show(view, self.left)

    def _update(self, over: threading.Event) -> None:
        pause = 0.0
        while not over.wait(pause):
            with contextlib.suppress(CloudtrainError):  # the caller that waits gets the same error
                description = self._platform.describe(self._job_name)
                if not over.is_set():
                    self.show(description)
            pause = self.pause

    def _look(self, description: JobDescription, *, changed: bool) -> JobView:
        """The job as it is now. Slow queries are repeated rarely."""
        now = time.monotonic()
        is_due = now - self._asked_at >= SLOW_PAUSES * self.pause
        if self._view is None or changed or description.status.is_final or is_due:
            self._asked_at = now
            return look_at(self._platform, self._job_name, description)
        view = replace(self._view, description=description, at=time.time())
        if isinstance(self._platform, Summaries):
            summary = summary_of(self._platform, self._job_name) or view.summary
            return replace(view, summary=summary, series=summary.series if summary else view.series)
        return view

    def _show(self, view: JobView, notes: Sequence[tuple[str, str]] = ()) -> None:
        publish(self._shell, bundle(view, notes), self._id, update=self._view is not None)
        self._view, self._shown_at = view, time.monotonic()


def _how_to_attach(job_name: str) -> list[tuple[str, str]]:
    job = f"cloudtrain.Job.attach({job_name!r})"
    return [
        (f"This cell no longer waits for job {job_name}, which continues. Attach:", f"{job}.wait(logs=True)"),
        ("Stop it:", f"{job}.stop()"),
    ]
