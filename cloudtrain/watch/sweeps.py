"""The sweeps of this machine, as shown in lists of jobs, with one row for all trials of a sweep, and on pages."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloudtrain._system.files import signature
from cloudtrain.errors import CloudtrainError
from cloudtrain.index import find_job
from cloudtrain.sweep.journal import EVENTS, Journal, sweeps_home
from cloudtrain.sweep.plan import SweepPlan
from cloudtrain.sweep.started import status_of
from cloudtrain.sweep.trials import Trial, Trials, read_trials

MOST_REMEMBERED = 50
_TRIAL = re.compile(r"-\d{4,}$")


@dataclass(frozen=True)
class SweepView:
    """A sweep at one moment."""

    name: str
    status: str
    plan: SweepPlan
    trials: Trials

    @property
    def is_over(self) -> bool:
        return self.status not in ("Running", "Stopping")

    @property
    def ended(self) -> int:
        return sum(trial.has_ended for trial in self.trials.all)

    @property
    def progress(self) -> str:
        """For example ``12 of 50 trials``."""
        return f"{self.ended:,} of {self.plan.trials:,} trials"

    @property
    def ended_at(self) -> float | None:
        """The time at which the last trial ended; None if the sweep is not over."""
        ends = [trial.ended_at for trial in self.trials.all if trial.ended_at is not None]
        return max(ends, default=None) if self.is_over else None

    @property
    def best(self) -> str:
        """The best trial so far, with its parameters; empty if there is none."""
        found = self.trials.best
        return f"best {self.plan.metric}={found.value:.6g}: {values_of(found)}" if found else ""

    @property
    def why(self) -> str:
        """The problem that ended the sweep; empty if there was none."""
        why = self.trials.finished
        return "" if why in (None, "completed", "stopped") else str(why)

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON, without its trials."""
        best = self.trials.best
        return {
            "kind": "sweep",
            "name": self.name,
            "platform": self.plan.platform,
            "status": self.status,
            "submitted_at": self.trials.created_at,
            "ended": self.ended,
            "total": self.plan.trials,
            "metric": self.plan.metric,
            "best": best.to_dict() if best else None,
            "why": self.why,
        }


def values_of(trial: Trial) -> str:
    """The parameters of a trial, in one line."""
    return " ".join(f"{name}={shown(value)}" for name, value in trial.parameters.items())


def shown(value: Any) -> str:
    """A parameter as text."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def known_sweeps() -> set[str]:
    """The names of the sweeps of this machine."""
    try:
        return {name for name in os.listdir(sweeps_home()) if not name.startswith(".")}
    except (OSError, CloudtrainError):
        return set()


def is_sweep(name: str) -> bool:
    """Whether this is the name of a sweep of this machine, and not that of a job."""
    return name in known_sweeps() and find_job(name) is None


def sweep_of(job: str, known: Collection[str]) -> str:
    """The sweep to which a job of this name belongs as a trial; empty if it is not a trial."""
    base = _TRIAL.sub("", job) if known else ""
    return base if base != job and base in known else ""


def look_at_sweep(name: str, *, wait: bool = True) -> SweepView:
    """The current state of the sweep. Its events are only read if they have changed.

    Args:
        wait: see `Journal.is_alive`; false in a view that looks repeatedly.

    Raises:
        JobNotFound: there is no such sweep.
        StorageError: its events cannot be read.
    """
    journal = Journal.named(name)
    is_alive, stop = (
        journal.is_alive(wait=wait),
        journal.requested_stop(),
    )  # before the events: see `StartedSweep.status`
    try:
        seen = tuple(signature(os.stat(journal.folder / EVENTS)))
    except OSError:
        seen = ()
    trials = _read(str(journal.folder), seen)
    assert trials.plan is not None
    return SweepView(name, status_of(trials, is_alive=is_alive, stop=stop), trials.plan, trials)


@lru_cache(MOST_REMEMBERED)
def _read(folder: str, _seen: tuple[Any, ...]) -> Trials:
    return read_trials(Journal(Path(folder)))
