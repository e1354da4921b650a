"""The live screen of ``cloudtrain top``: draws changes and handles keys."""

from __future__ import annotations

import time
import warnings
from contextlib import closing
from functools import partial

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from cloudtrain._display.view import JobView, look_at
from cloudtrain._system.keys import keys
from cloudtrain.contract.text import one_line
from cloudtrain.errors import CloudtrainError
from cloudtrain.job import Job
from cloudtrain.platforms import get_platform
from cloudtrain.watch.sweeps import SweepView
from cloudtrain.watch.top.job_page import Scroll, job_page
from cloudtrain.watch.top.jobs import Row, RunningJobs
from cloudtrain.watch.top.lines import clock, fitted, safe
from cloudtrain.watch.top.list_page import Choice, list_page
from cloudtrain.watch.top.poller import Poller
from cloudtrain.watch.top.sweep_page import look as look_at_sweep, sweep_page

TICK = 0.25
"""The longest time until a new result, or a new size of the terminal, is drawn."""
STALE_SECONDS = 10.0
"""The age of a result is shown if it is older."""
SMALLEST = (20, 6)
"""Columns and lines. A smaller terminal cuts off the rest of the screen."""


class Top:
    """A live view of the jobs of one platform, or of all; it begins with the job or sweep ``first``, if given."""

    def __init__(self, console: Console, first: Job | str | None, platform: str | None) -> None:
        self._console = console
        self._jobs: Poller[list[Row]] | None = None
        self._platform = platform
        self._choice = Choice()
        self._scroll = Scroll()
        self._job: Poller[JobView] | None = None
        self._sweep: Poller[SweepView] | None = None
        self._presses = 0
        self._problem = ""
        """Why the last key had no effect."""
        if isinstance(first, str):
            self._open_sweep(first)
        elif first:
            self._open(first)
        else:
            self._list()

    def close(self) -> None:
        """Stop querying platforms, after the queries in progress."""
        for poller in (self._jobs, self._job, self._sweep):
            if poller:
                poller.stop()

    def run(self) -> None:
        """Run until the user quits. The terminal is restored in any case."""
        drawn: object = None
        with warnings.catch_warnings(), closing(self):
            warnings.simplefilter("ignore")  # a warning would appear in the middle of the screen
            with (
                keys() as read,
                Live(
                    console=self._console,
                    screen=True,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                ) as live,
            ):
                while True:
                    state = self._state()
                    if state != drawn:
                        live.update(Group(*self._lines()), refresh=True)
                        drawn = state
                    try:
                        pressed = read(TICK)
                    except EOFError:  # the terminal is closed
                        return
                    for key in pressed:
                        if key in ("q", "Q"):
                            return
                        self._press(key)

    @property
    def _poller(self) -> Poller[JobView] | Poller[SweepView] | Poller[list[Row]]:
        found = self._job or self._sweep or self._jobs
        assert found is not None
        return found

    def _state(self) -> tuple[object, ...]:
        """Everything that the screen depends on. The screen is redrawn when this changes."""
        poller = self._poller
        age = int(time.time() - poller.at)
        shown_age = age if age > STALE_SECONDS or poller.problem or poller.result is None else 0
        return self._console.size, id(poller), poller.version, self._presses, shown_age

    def _lines(self) -> list[Text]:
        width, height = self._console.size
        width, height = max(width, SMALLEST[0]), max(height, SMALLEST[1])
        notes = self._notes()
        if self._job and self._job.result:
            lines = job_page(self._job.result, width, height - 1, self._scroll, notes)
        elif self._sweep and self._sweep.result:
            lines = sweep_page(self._sweep.result, width, height - 1, notes)
        elif self._jobs and self._poller is self._jobs and self._jobs.result is not None:
            lines = list_page(self._jobs.result, width, height - 1, self._choice, notes)
        else:
            lines = notes or [Text("…", style="dim")]
        lines += [Text()] * (height - 1 - len(lines))
        return [*lines, fitted(self._help(), width)]

    def _notes(self) -> list[Text]:
        """Lines about a platform that cannot be loaded or does not answer in time."""
        if self._problem:
            return [safe(self._problem, "black on yellow")]
        poller = self._poller
        age = time.time() - poller.at
        if not poller.problem and age <= STALE_SECONDS + poller.pause:
            return []
        since = f"as of {clock(poller.at)}, {age:.0f} s ago" if poller.result is not None else "no answer yet"
        return [
            safe(f"{since}: {poller.problem or 'the platform has not answered since'}", "black on yellow")
        ]

    def _help(self) -> Text:
        if self._sweep:
            return Text("q quit   esc all jobs", style="dim")
        if not self._job:
            return Text("q quit   ↑ ↓ choose   enter open   s sweep", style="dim")
        rows, first, room = self._scroll.rows, self._scroll.first, self._scroll.room
        part = f"   ↑ ↓ scroll ({first + 1}-{min(first + room, rows)} of {rows})" if rows > room else ""
        how = "equal hosts together" if self._scroll.separate else "hosts one by one"
        return Text(f"q quit   esc all jobs   g {how}{part}", style="dim")

    def _press(self, key: str) -> None:
        self._presses += 1
        self._problem = ""
        by = {"up": -1, "down": 1, "k": -1, "j": 1, "home": -(10**6), "end": 10**6}.get(key, 0)
        if self._sweep:
            if key in ("escape", "left"):
                self._list()
            return
        if not self._job:
            rows = (self._jobs.result if self._jobs else None) or []
            pages = {"page-up": -10, "page-down": 10}
            self._choice.move(rows, by or pages.get(key, 0))
            if key == "s" and (sweep := self._choice.sweep(rows)):
                self._open_sweep(sweep)
            if key in ("enter", "right") and (row := self._choice.chosen(rows)):
                try:
                    self._open(Job(row.name, get_platform(row.platform)), row.view)
                except CloudtrainError as error:
                    self._problem = one_line(error)
            return
        room = self._scroll.room
        if key in ("escape", "left"):
            self._list()
        elif key == "g":
            self._scroll = Scroll(separate=not self._scroll.separate)
        else:
            self._scroll.move(by or {"page-up": -room, "page-down": room}.get(key, 0))

    def _open(self, job: Job, view: JobView | None = None) -> None:
        self._scroll = Scroll()
        self._job = Poller(
            lambda: look_at(job.platform, job.name), view, lambda view: view.description.status.is_final
        )
        if self._jobs:
            self._jobs.stop()

    def _open_sweep(self, name: str) -> None:
        self._sweep = Poller(partial(look_at_sweep, name, wait=False), None, lambda view: view.is_over)
        if self._jobs:
            self._jobs.stop()

    def _list(self) -> None:
        last = self._jobs.result if self._jobs else None
        for poller in (self._job, self._sweep):
            if poller:
                poller.stop()
        self._job = self._sweep = None
        self._jobs = Poller(RunningJobs(self._platform).look, last)
