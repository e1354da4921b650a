"""A started sweep: its state, its controller and its best trial."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudtrain._system.files import open_to_append
from cloudtrain.errors import InvalidJob, NotFound, PlatformError
from cloudtrain.platforms import get_platform
from cloudtrain.spec.names import clean
from cloudtrain.sweep.fields import check_places, check_shares, trial_fields
from cloudtrain.sweep.journal import LOG, STOP_ASKING, STOP_TRIALS, Journal, sweeps_home
from cloudtrain.sweep.plan import changed
from cloudtrain.sweep.trials import NO_BUDGET, Trial, Trials, read_trials

if TYPE_CHECKING:
    from cloudtrain.job import Job

CONTROLLER = "cloudtrain.sweep.main"
START_SECONDS = 120.0
POLL_SECONDS = 0.2


class StartedSweep:
    """A handle on one sweep of this machine. It has no state: every method reads the events of the sweep.

    Attributes:
        projection: the most that a sweep that was just created can cost, as a sentence; empty if no price is known.
    """

    def __init__(self, journal: Journal, projection: str = "") -> None:
        self.journal, self.projection = journal, projection
        self.name = journal.name

    @classmethod
    def attach(cls, name: str) -> StartedSweep:
        """The sweep with this name. Raises JobNotFound."""
        return cls(Journal.named(name))

    @property
    def trials(self) -> Trials:
        """The trials so far. Raises StorageError."""
        return read_trials(self.journal)

    @property
    def status(self) -> str:
        is_alive = (
            self.journal.is_alive()
        )  # before reading, so that the last event of a controller that has ended is included
        return status_of(self.trials, is_alive=is_alive, stop=self.journal.requested_stop())

    def best(self) -> Trial:
        """The completed trial with the best value. Raises NotFound if there is none yet."""
        found = self.trials.best
        if found is None:
            raise NotFound(f"sweep {self.name} has no completed trial with a value yet")
        return found

    def describe(self) -> dict[str, Any]:
        """The sweep as data: its plan, its status, its trials, and the best of them."""
        is_alive, trials = self.journal.is_alive(), self.trials
        assert trials.plan is not None
        plan = trials.plan.to_dict()
        best = trials.best
        return {
            "name": self.name,
            "status": status_of(trials, is_alive=is_alive, stop=self.journal.requested_stop()),
            "why": trials.finished if trials.finished not in (None, "completed", "stopped") else "",
            "cost": trials.cost,
            "currency": trials.currencies[0] if len(trials.currencies) == 1 else None,
            **{name: value for name, value in plan.items() if name not in ("name", "fields", "id", "trials")},
            "wanted": plan["trials"],
            "repeated": trials.repeated,
            "best": best.to_dict() if best else None,
            "trials": [trial.to_dict() for trial in trials.all],
            "folder": str(self.journal.folder),
        }

    def start_controller(self) -> None:
        """Start the process that controls the sweep, and that outlives this one. Raises PlatformError."""
        from cloudtrain.platforms.supervised.client_environ import client_environ
        from cloudtrain.platforms.supervised.early import start_process

        log = open_to_append(self.journal.folder / LOG, 0o600)
        try:
            started = start_process(CONTROLLER, client_environ(), log)
        finally:
            os.close(log)
        if started is None:
            raise PlatformError(
                "the controller of the sweep does not start", hint="This machine has no processes left."
            )
        connection, process = started
        with connection:
            connection.settimeout(START_SECONDS)
            try:
                connection.sendall(f"{self.name}\n".encode())
                answer = connection.makefile("r").readline().strip()
            except OSError as error:
                answer = f"it gave no answer: {error}"
        if answer != "ok":
            raise PlatformError(
                answer or f"the controller of sweep {self.name} ended. See {self.journal.folder / LOG}"
            )
        process.returncode = 0  # avoids the ResourceWarning, because it keeps running

    def run_here(self, show: Callable[[Trial, Trials], object] | None = None) -> None:
        """Control the sweep in this process until it ends. Raises PlatformError if another process controls it.

        Args:
            show: called with each trial that ends.
        """
        from cloudtrain.sweep.controller import control

        with self.journal.owned():
            control(self.journal, show=show)

    def continue_(
        self, more: int = 0, space: Mapping[str, Any] | None = None, parallel: int | None = None
    ) -> None:
        """Continue a sweep that has ended, or whose controller was killed, with more trials or another space.

        The caller must start its controller afterwards, with `start_controller`.

        Raises:
            InvalidJob: the space is invalid, no trials remain, or ``parallel`` would move the shares of hosts in which
                trials are running.
            PlatformError: the sweep has a controller.
        """
        with self.journal.owned():
            trials = self.trials
            assert trials.plan is not None
            plan = changed(trials.plan, more=more, space=space, parallel=parallel)
            platform = get_platform(plan.platform)
            check_places(plan, platform)
            check_shares(trials.plan, plan, trials.open, platform)
            if len(trials.all) >= plan.trials and not trials.open:
                raise InvalidJob(
                    f"sweep {self.name} has all of its {plan.trials} trials",
                    hint=f"Add some: cloudtrain sweep continue {self.name} --trials 10",
                )
            if plan.sampler == "pbt" and not trials.open and len(trials.all) >= trials.wanted_by(plan):
                raise InvalidJob(
                    f"sweep {self.name} has trained its population to the end: nothing is left to replace",
                    hint=f"Train the best one longer: cloudtrain sweep best {self.name} --submit --set FIELD=VALUE",
                )
            self.journal.forget_stop()
            self.journal.append("changed", plan=plan.to_dict())

    def stop(self, *, trials: bool = False) -> None:
        """Start no further trials; with ``trials``, also stop those that are running.

        If the controller was killed, this process stops the running trials.
        """
        self.journal.request_stop(STOP_TRIALS if trials else STOP_ASKING)
        if trials and not self.journal.is_alive() and self.trials.open:
            self.run_here()

    def follow(self, seen: Collection[int] = ()) -> Iterator[tuple[Trials, Trial | None]]:
        """Yield the state repeatedly, with each trial that has ended, until the sweep has no controller.

        Args:
            seen: the numbers of trials to leave out.
        """
        trials, position, shown = Trials(), 0, {*seen}
        while True:
            is_alive = self.journal.is_alive()  # before reading, so that its last events are included
            events, position = self.journal.read(position)
            for event in events:
                trials.add(event)
            for trial in trials.all:
                if trial.has_ended and trial.number not in shown:
                    shown.add(trial.number)
                    yield trials, trial
            yield trials, None
            if trials.finished is not None or not is_alive:
                return
            time.sleep(POLL_SECONDS)

    def wait(self, show: Callable[[str], object] | None = None) -> Trials:
        """Wait until the sweep has ended, and return its trials. An interrupt does not stop the sweep.

        Raises PlatformError if its controller was killed.
        """
        trials = Trials()
        for trials, ended in self.follow():
            if ended and show:
                show(line_of(ended, trials))
        if trials.finished is None:
            raise PlatformError(
                f"sweep {self.name} has no controller: it was killed, or has failed. Its trials run on.",
                hint=f"Continue it: cloudtrain sweep continue {self.name}. Its log: {self.journal.folder / LOG}",
            )
        return trials

    def best_job(self) -> Job:
        """The job of the best trial. Raises NotFound, JobNotFound."""
        from cloudtrain.job import Job

        plan = self.trials.plan
        return Job.attach(self.best().name, plan.platform if plan else None)

    def best_fields(self, job_name: str) -> dict[str, Any]:
        """The fields of a job that continues the best trial from its checkpoints. Raises NotFound, JobNotFound."""
        plan = self.trials.plan
        assert plan is not None
        fields = trial_fields(plan, replace(self.best(), max_cost=None))
        checkpoints = self.best_job().describe().checkpoint_uri
        return {**fields, "job_name": job_name, **({"checkpoint_s3_uri": checkpoints} if checkpoints else {})}

    def __repr__(self) -> str:
        return f"<StartedSweep {self.name}>"


def status_of(trials: Trials, *, is_alive: bool, stop: int) -> str:
    """The status of a sweep, in the terms of jobs."""
    if trials.finished is not None:
        return {"completed": "Completed", "stopped": "Stopped", NO_BUDGET: "Stopped"}.get(
            trials.finished, "Failed"
        )
    if not is_alive:
        return "Interrupted"
    return "Stopping" if stop else "Running"


def line_of(trial: Trial, trials: Trials) -> str:
    """One line about a trial that has ended."""
    value = "" if trial.value is None else f" {trials.plan.metric if trials.plan else ''}={trial.value:.6g}"
    parameters = " ".join(f"{name}={_short(one)}" for name, one in trial.parameters.items())
    best = " (the best so far)" if trials.best is trial else ""
    why = f": {trial.why}" if trial.why else ""
    return f"{trial.name}  {trial.status}{value}  {parameters}{best}{why}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def sweep_names() -> list[str]:
    """The sweeps of this machine, newest last, without folders whose names are not valid for sweeps."""
    try:
        found = [entry for entry in os.scandir(sweeps_home()) if clean(entry.name) == entry.name]
    except OSError:
        return []
    return [entry.name for entry in sorted(found, key=lambda entry: entry.stat().st_mtime)]
