"""The controller of a sweep: chooses trials, submits them as jobs, and learns from their results.

Every step is an event in the journal. If a controller is killed between any two of them, another one can continue the
sweep: it submits a trial that was chosen but has no job, and adopts a job of the sweep that exists under the name of a
trial.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.contract.text import one_line
from cloudtrain.errors import (
    CheckpointError,
    CloudtrainError,
    InDoubt,
    InvalidJob,
    InvalidSource,
    JobExists,
    JobNotFound,
    PlatformError,
    StorageError,
)
from cloudtrain.history.refresh import freeze
from cloudtrain.job import Job
from cloudtrain.platforms import (
    JobDescription,
    Metrics,
    Outlines,
    Platform,
    Prices,
    Requests,
    WarmUp,
    Withdrawal,
    get_platform,
)
from cloudtrain.submission import prepare
from cloudtrain.sweep.fields import placed_fields, trial_fields
from cloudtrain.sweep.journal import LOG, STOP_TRIALS, Journal, Replaced
from cloudtrain.sweep.plan import SweepPlan
from cloudtrain.sweep.suggest import Suggestions, suggestions, usable
from cloudtrain.sweep.trials import (
    ASKED,
    COMPLETED,
    FAILED,
    NO_BUDGET,
    NO_VALUE,
    PRUNED,
    STOPPED,
    DamagedEvents,
    Trial,
    Trials,
    read_trials,
)
from cloudtrain.sweep.values import kept

POLL_SECONDS, LONGEST_POLL_SECONDS = 0.1, 2.0
LONGEST_PAUSE = 60.0
"""The longest pause, in seconds, after a failure to reach a platform or to write an event."""
SILENT_TRIALS = 3
"""The number of completed trials without the metric after which a sweep ends, if no trial has reported it."""
SCRATCH = ".hand-on-"
"""The prefix of the names of temporary folders in which a checkpoint is copied to a child."""
REFUSED_TRIALS = 3
"""The number of consecutive trials refused by the platform after which the sweep ends."""
GONE_LOOKS = 5
"""The number of consecutive looks that must not find a submitted job before its trial counts as lost."""
MOST_WITHDRAWALS = 3
"""The most times that a trial is resubmitted because its submission was interrupted."""
PAUSE_OF_LOOKS = 10
"""The pause between two looks at the values of a trial, as a multiple of the time that a look takes, because a long
trial has many values."""
MOST_DEFECTS = 10
"""The number of consecutive unexpected exceptions, for example from a malformed answer, after which the sweep ends."""


def control(
    journal: Journal, platform: Platform | None = None, show: Callable[[Trial, Trials], object] | None = None
) -> None:
    """Run the sweep to its end. The caller must own the journal.

    Raises DamagedEvents if there is no state to continue, Replaced if another process controls the sweep now.

    The first SIGINT stops the sweep from starting further trials, the second also stops the running ones: see
    `Journal.request_stop`.

    Args:
        platform: the platform of the trials, if it cannot be found by its name.
        show: called with each trial that ends.
    """
    pause, defects, problem = POLL_SECONDS, 0, ""
    for left in journal.folder.glob(f"{SCRATCH}*"):  # of a controller that was killed
        shutil.rmtree(left, ignore_errors=True)
    with _interrupts(journal):
        while True:
            began = time.monotonic()
            try:
                if problem:
                    journal.append("finished", why=problem)
                    return
                Controller(journal, platform, show).run()
                return
            except (InvalidJob, InvalidSource) as error:
                problem = error.message
            except (DamagedEvents, Replaced):
                raise
            except (CloudtrainError, OSError) as error:
                _log(str(error))  # such as a full disk; the state in memory may be wrong
            except Exception as error:
                _log(traceback.format_exc())
                defects += 1
                if defects >= MOST_DEFECTS:
                    what = one_line(f"{type(error).__name__}: {error}")
                    problem = f"a defect of cloudtrain ended it: {what}. See {journal.folder / LOG}"
            if problem or time.monotonic() - began > LONGEST_PAUSE:  # it went well for a while
                pause, defects = POLL_SECONDS, min(defects, 1)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _log(text: str) -> None:
    """Print to the log of the controller, or to the terminal, which may be closed."""
    with contextlib.suppress(OSError, ValueError):
        print(f"{time.strftime('%F %T')} {text}", flush=True)  # noqa: T201


@contextlib.contextmanager
def _interrupts(journal: Journal) -> Iterator[None]:
    def interrupted(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # a full disk; the request is kept in memory
            journal.request_stop(min(journal.requested_stop() + 1, STOP_TRIALS))

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Controller:
    """A controller. Its state is rebuilt from the events, so that a new one continues where the last one ended."""

    def __init__(
        self,
        journal: Journal,
        platform: Platform | None = None,
        show: Callable[[Trial, Trials], object] | None = None,
    ) -> None:
        self.journal = journal
        self._show = show
        self.trials = read_trials(journal)
        assert self.trials.plan
        self.plan: SweepPlan = self.trials.plan
        self.platform = platform or get_platform(self.plan.platform)
        self._is_listed = platform is None
        self._suggestions: Suggestions = suggestions(self.plan, self.trials.all)
        self._reported: dict[int, int] = {}
        """The number of values of each running trial that were looked at."""
        self._unread: dict[int, float] = {}
        """The monotonic time of the next look at the values of each running trial."""
        self._upkeep: dict[int, contextlib.ExitStack] = {}
        self._gone: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._retry_at = 0.0
        self._pause = POLL_SECONDS

    def run(self) -> None:
        pause = POLL_SECONDS
        try:
            while self.trials.finished is None:
                if self.turn():
                    pause = POLL_SECONDS
                else:
                    time.sleep(pause)
                    pause = min(1.2 * pause, LONGEST_POLL_SECONDS)
        finally:
            for held in self._upkeep.values():
                held.close()

    def turn(self) -> bool:
        """Look at all trials, and start those that can start. Returns whether anything has changed.

        Raises Replaced.
        """
        self.journal.check_owner()
        stop = self.journal.requested_stop()
        happened = [self._look_at(trial, found, stop) for trial, found in self._described()]
        problem = self._problem()
        if not stop and not problem and (started := self._start_trials()):
            happened += started
            problem = self._problem()
        is_complete = len(self.trials.all) >= self.trials.wanted
        if stop or problem:
            has_ended = self._adopt_asked() and all(trial.status == ASKED for trial in self.trials.open)
        else:
            has_ended = not self.trials.open and (is_complete or self.trials.next_cap() == 0)
        if has_ended:
            orderly = "stopped" if stop else "completed" if is_complete else NO_BUDGET
            self._record("finished", why=problem or orderly)
        return any(happened)

    def _record(self, event: str, **values: Any) -> None:
        self.trials.add(self.journal.append(event, **values))

    def _problem(self) -> str:
        """The reason why further trials make no sense; empty if they do."""
        ended = [trial for trial in self.trials.all[self.trials.continued_at :] if trial.has_ended]
        silent = [trial for trial in ended if trial.status == NO_VALUE]
        if len(silent) >= SILENT_TRIALS and not any(trial.value is not None for trial in ended):
            return f"{len(silent)} trials have completed, and none has a value of {self.plan.metric}: {silent[0].why}"
        last = ended[-REFUSED_TRIALS:]
        if len(last) == REFUSED_TRIALS and all(trial.why.startswith(REFUSED) for trial in last):
            return last[-1].why
        return ""

    # submit

    def _start_trials(self) -> list[bool]:
        if not self._adopt_asked():
            return []
        started = []
        for trial in [one for one in self.trials.open if one.status == ASKED]:
            if not self._has_place(trial):
                break
            started.append(self._submit(trial))
        while len(self.trials.open) < self.plan.parallel and len(self.trials.all) < self.trials.wanted:
            number, cap = len(self.trials.all), self.trials.next_cap()
            if cap == 0.0 or self._problem():
                break
            parameters, attributes = self._suggestions.ask(number)
            slot = self.trials.free_slot
            about = {"parameters": parameters, "attributes": attributes, "slot": slot, "max_cost": cap}
            self._record("asked", trial=number, **about)
            started.append(self._submit(self.trials.all[number]))
            if not started[-1]:
                break
        return started

    def _has_place(self, trial: Trial) -> bool:
        """Whether a slot is free for a trial that was chosen earlier, because ``parallel`` may be less since then."""
        slot = self.trials.slot_of(trial)
        if slot is not None and slot != trial.slot:
            self._record("placed", trial=trial.number, slot=slot)  # before its job can be adopted
        return slot is not None

    def _adopt_asked(self) -> bool:
        """Adopt the jobs of trials that were being submitted. Returns whether it is known which of them exist.

        The others are submitted when the sweep continues.
        """
        if time.monotonic() < self._retry_at:
            return False
        for trial in [one for one in self.trials.open if one.status == ASKED]:
            try:
                if self._adopted(trial):
                    self._record("submitted", trial=trial.number)
            except JobExists:
                continue  # the job does not belong to the sweep
            except CloudtrainError as error:
                self._retry_later(error)
                return False
        return True

    def _submit(self, trial: Trial) -> bool:
        """Submit the job of a trial that has none. Returns false if the submission has to be retried later."""
        try:
            try:
                self._submit_job(trial)
            except JobExists:
                if not self._adopted(trial):
                    raise
        except (InvalidJob, InvalidSource, JobExists) as error:
            self._end(trial, FAILED, f"{REFUSED}: {error.message}", cost=0.0)
            return True
        except CloudtrainError as error:
            if isinstance(error, InDoubt) or error.is_transient or isinstance(error, StorageError):
                self._retry_later(error)
                return False
            self._end(trial, FAILED, f"{REFUSED}: {error.message}", cost=0.0)
            return True
        self._pause = POLL_SECONDS
        self._record("submitted", trial=trial.number)
        return True

    def _submit_job(self, trial: Trial) -> None:
        fields = placed_fields(self.plan, trial, self.platform)
        submission = prepare(fields, self.platform, is_share=True, defaults={})
        if trial.parent is not None:
            self._hand_on(trial, self.trials.all[trial.parent], submission.job.checkpoint_s3_uri or "")
        replace(submission, indexed=self._is_listed).submit()
        if isinstance(self.platform, WarmUp) and len(self.trials.all) < self.trials.wanted:
            self.platform.warm_up()

    def _hand_on(self, trial: Trial, parent: Trial, uri: str) -> None:
        """Copy a checkpoint of a parent to its child before the child is submitted.

        Raises InvalidJob if the parent has ended without a checkpoint, StorageError if there is none yet or the copy
        has to be retried.
        """
        from cloudtrain.sweep.population import hand_on

        given = trial_fields(self.plan, parent)["checkpoint_s3_uri"]
        try:
            with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=self.journal.folder) as scratch:
                step = hand_on(given, uri, trial.attributes.get("parent_step"), Path(scratch))
        except CheckpointError as error:  # the parent has deleted it meanwhile, because it has a newer one
            raise StorageError(f"the checkpoint of {parent.name} cannot be handed on: {error}") from error
        except OSError as error:
            raise StorageError(f"the checkpoint of {parent.name} cannot be copied: {error}") from error
        if step is None and parent.has_ended:
            raise InvalidJob(f"{parent.name} has ended without a checkpoint that could be handed on")
        if step is None:
            raise StorageError(f"{parent.name} has no checkpoint yet that could be handed on")

    def _retry_later(self, error: CloudtrainError) -> None:
        _log(str(error))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._retry_at = time.monotonic() + self._pause

    def _adopted(self, trial: Trial) -> bool:
        """Whether the job of a trial exists, because a controller was killed after submitting it, or got no answer.

        Raises:
            JobExists: the job of this name does not belong to the sweep.
            InDoubt: its submission was interrupted. The job is being removed, and is then resubmitted.
        """
        try:
            self.platform.describe(trial.name)
            is_known = isinstance(self.platform, Requests)
            if is_known and self.plan.id not in self.platform.request(trial.name).to_json():  # type: ignore[attr-defined]
                raise JobExists(f"there is already a job {trial.name}, which does not belong to the sweep")
            self.journal.check_owner()  # another controller may submit the job now
            if isinstance(self.platform, Withdrawal) and self.platform.withdraw(trial.name):
                raise InDoubt(f"the submission of {trial.name} was interrupted: it is submitted again")
        except JobNotFound:
            return False
        return True

    # watch

    def _described(self) -> list[tuple[Trial, JobDescription | CloudtrainError]]:
        """The trials that have a job, with its description, or the error if the platform does not provide it."""
        running = [trial for trial in self.trials.open if trial.status != ASKED]
        names = [trial.name for trial in running]
        if isinstance(self.platform, Outlines):
            return [*zip(running, self.platform.outlines(names), strict=True)]
        return [(trial, self._describe(trial.name)) for trial in running]

    def _describe(self, name: str) -> JobDescription | CloudtrainError:
        try:
            return self.platform.describe(name)
        except CloudtrainError as error:
            return error

    def _look_at(self, trial: Trial, found: JobDescription | CloudtrainError, stop: int) -> bool:
        if isinstance(found, JobNotFound):
            self._gone[trial.number] = self._gone.get(trial.number, 0) + 1
            if self._gone[trial.number] < GONE_LOOKS:
                return False
            self._end(trial, FAILED, "its job is gone: it was removed")
            return True
        self._gone.pop(trial.number, None)
        if isinstance(found, CloudtrainError):
            return False  # unknown, not ended
        if not found.status.is_final:
            self._tend(trial)
            if stop >= STOP_TRIALS or trial.pruned_at is not None:
                self._stop(trial)
            elif self.plan.prunes:
                return self._prune(trial)
            return False
        return self._ended(trial)

    def _tend(self, trial: Trial) -> None:
        if trial.number not in self._upkeep:
            held = self._upkeep[trial.number] = contextlib.ExitStack()
            held.enter_context(Job(trial.name, self.platform).upkeep())

    def _stop(self, trial: Trial) -> None:
        if trial.number not in self._stopped:
            with contextlib.suppress(JobNotFound):
                self.platform.stop(trial.name)
            self._stopped.add(trial.number)

    def _prune(self, trial: Trial) -> bool:
        """Report the new values of a running trial to the pruner, and stop the trial if the pruner decides so."""
        values = self._new_values(trial)
        if not values and trial.values and self._suggestions.compares:
            step = max(trial.values)  # other trials may have reached it since then
            values = [(step, trial.values[step])]
        for step, value in values:
            trial.values[step] = value
            if self._suggestions.report(trial.number, step, value):
                self._record("pruned", trial=trial.number, step=step, value=usable(value))
                self._stop(trial)
                return True
        return False

    def _new_values(self, trial: Trial, *, is_last: bool = False) -> list[tuple[int, float]]:
        """The values since the last look. If looks take long, they are rare, but the last one always takes place."""
        began = time.monotonic()
        if not isinstance(self.platform, Metrics) or (
            began < self._unread.get(trial.number, 0) and not is_last
        ):
            return []
        points = self.platform.metrics(trial.name).get(self.plan.metric, ())
        self._unread[trial.number] = began + PAUSE_OF_LOOKS * (time.monotonic() - began)
        seen = self._reported.get(trial.number, 0)
        self._reported[trial.number] = max(len(points), seen)
        boundaries = self.plan.prune_after if self.plan.sampler == "pbt" else 0
        last = max(trial.values, default=-1)
        return [*kept(points, seen=seen, last=last, boundaries=boundaries, is_last=is_last)]

    def _ended(self, trial: Trial) -> bool:
        found = self._describe(trial.name)
        if isinstance(found, CloudtrainError) or not found.status.is_final:
            return False
        if self.plan.prunes and trial.pruned_at is None:
            # the pruner compares later trials with these values
            for step, number in self._new_values(trial, is_last=True):
                trial.values[step] = number
                self._suggestions.report(trial.number, step, number)
        try:
            if self._was_interrupted(trial, found):
                # `_adopted` removes the job, even if this controller is killed
                self._record("withdrawn", trial=trial.number)
                return True
        except PlatformError:
            return False
        status, why = _outcome(trial, found, self.plan.metric)
        value = trial.value if status == PRUNED else usable(found.metrics.get(self.plan.metric))
        failure = str(found.failure.failure_class) if found.failure else None
        try:
            cost = self.platform.cost(found) if isinstance(self.platform, Prices) else None
        except PlatformError:  # retried at the next look, so that other trials do not wait
            return False
        known = (cost.amount, cost.currency) if cost else (None, None)
        self._end(trial, status, why, value, failure, *known)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they have no reader here
            freeze(self.platform, found)
        return True

    def _was_interrupted(self, trial: Trial, found: JobDescription) -> bool:
        """Whether a job has failed because its submission was interrupted, so that it has to be resubmitted."""
        if found.status != JobStatus.FAILED or found.started_at or trial.withdrawals >= MOST_WITHDRAWALS:
            return False
        return isinstance(self.platform, Withdrawal) and self.platform.was_interrupted(trial.name)

    def _end(
        self,
        trial: Trial,
        status: str,
        why: str = "",
        value: float | None = None,
        failure_class: str | None = None,
        cost: float | None = None,
        currency: str | None = None,
    ) -> None:
        self._record(
            "ended",
            trial=trial.number,
            status=status,
            value=value,
            why=why,
            failure_class=failure_class,
            cost=cost,
            currency=currency,
            values=trial.values,
            attributes=self._suggestions.remembered(trial.number),
        )
        self._suggestions.tell(trial)
        if self._show:
            self._show(trial, self.trials)
        held = self._upkeep.pop(trial.number, None)
        if held:
            held.close()


REFUSED = "not submitted"


def _outcome(trial: Trial, found: JobDescription, metric: str) -> tuple[str, str]:
    """The status of a trial that has ended, and the reason if it has no value or failed."""
    if found.status == JobStatus.COMPLETED:
        if usable(found.metrics.get(metric)) is not None:
            return COMPLETED, ""
        if metric in found.metrics:
            return NO_VALUE, f"the last {metric} is {found.metrics[metric]}"
        known = ", ".join(sorted(found.metrics)) or "it reported no metrics"
        never = f"it never reported {metric}: {known}"
        if trial.parent is None:
            return NO_VALUE, never
        return (
            NO_VALUE,
            f"{never}. It continued from trial {trial.parent}, and may have had nothing left to train",
        )
    if trial.pruned_at is not None:
        return PRUNED, ""
    why = found.failure.summary() if found.failure else found.reason
    if found.status == JobStatus.FAILED:
        kind = found.failure.failure_class if found.failure else FailureClass.PLATFORM
        return FAILED, f"{why} [{kind}]"
    return STOPPED, why
