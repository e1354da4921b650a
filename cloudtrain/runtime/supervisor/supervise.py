"""The supervisor of one job, which runs near the job's folder and hosts.

It starts one runtime for each host, waits for them, restarts them after a failure or a preemption if the job allows it,
and records the outcome. If a scheduler has to assign other hosts after a preemption, another supervisor runs the next
attempt: see `continuation`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloudtrain._system.processes import identity
from cloudtrain._system.retries import RETRY_SECONDS, again, exists
from cloudtrain._system.signals import ENDING, SIGHUP, SIGKILL, handle, own_number, unblock
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.preemption import NATIVE_STACKS, PREEMPT, STACKS
from cloudtrain.contract.request_body import request_settings
from cloudtrain.contract.trackers import new_run_id
from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.observe import EventLog, steady
from cloudtrain.observe.events import SUPERVISOR
from cloudtrain.runtime.diagnose.first_cause import INTERRUPTED, HostEnds, was_interrupted
from cloudtrain.runtime.outputs.patience import UPLOAD_SECONDS
from cloudtrain.runtime.supervisor.caps import day_of, limit_of, money, price_of, spent, terms_of_attempt
from cloudtrain.runtime.supervisor.continuation import PREEMPTED, TAKEN_BACK, Continuation
from cloudtrain.runtime.supervisor.folder import FOR_NATIVE_STACKS, JobFolder
from cloudtrain.runtime.supervisor.host_events import HostEvents
from cloudtrain.runtime.supervisor.hosts import Hosts, RunningHost
from cloudtrain.runtime.supervisor.job_summary import JobSummary
from cloudtrain.runtime.supervisor.left_memory import save_left_memory
from cloudtrain.runtime.supervisor.places import came_back, moved
from cloudtrain.runtime.supervisor.record import (
    HANGUP,
    INTERRUPT,
    SIGNAL,
    STOPPED_BY_USER,
    JobRecord,
    lost_late,
)
from cloudtrain.runtime.supervisor.reports import (
    disk_full_report,
    disk_warnings,
    found_no_space,
    preemption_report,
)
from cloudtrain.runtime.supervisor.restarts import PREEMPTIONS, REPEATED_CODE, RETRIES, decide
from cloudtrain.runtime.supervisor.spares import LOST_SECONDS, RECLAIMED_SECONDS, SpareHosts
from cloudtrain.storage import retry_policy
from cloudtrain.storage.disk_reserve import is_full

if TYPE_CHECKING:
    from cloudtrain.runtime.supervisor.notifications import JobNotifications

POLL_SECONDS = 0.02

LAST_UPLOAD_SECONDS = 60.0
"""How long uploads may continue after the grace of a stop or of ``max_run``."""

LOST = "interrupted without a notice"

TAKEN_BACK_SECONDS = 2.0
"""How long the scheduler may take, after SIGTERM or the kill of a rank, to report that it takes the hosts back."""
ASK_SECONDS = 0.5
"""Seconds between two queries of the scheduler during this time."""
TermsNow = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
_REASONS = {SIGHUP: HANGUP, signal.SIGINT: INTERRUPT}
_CODES = {reason: 128 + number for number, reason in _REASONS.items()}


class Supervisor:
    """One job from its first attempt to its outcome."""

    def __init__(
        self,
        folder: JobFolder,
        hosts: Hosts,
        continuation: Continuation | None = None,
        lock: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        terms_now: TermsNow | None = None,
        keep_courier: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = lock
        self._hosts = hosts
        self._continuation = continuation
        folder.reserve.keep()
        self._record: JobRecord = folder.read_record()
        self._request = self._record.priced(folder.read_request())
        self._terms_now, self._keep_courier = terms_now, keep_courier
        settings = request_settings(self._request)
        self._stop_grace, self._host_timeout = settings.stop_grace, settings.host_timeout
        self._events = EventLog(folder.events, SUPERVISOR)
        self._host_events = HostEvents(folder, self._events, uploads=hosts.upload)
        self._notifications: JobNotifications | None = None
        if self._request.get("notify"):
            from cloudtrain.runtime.supervisor.notifications import JobNotifications

            self._notifications = JobNotifications(folder, self._request)
        self._signalled = False
        self._signal = SIGNAL
        """Why a signal ends the job: `SIGNAL`, `HANGUP` or `INTERRUPT`."""
        self._noticed = False
        """Whether a notice of a preemption has arrived that does not take effect yet."""
        self._give_up_at: float | None = None
        """When the notice takes effect."""
        self._preempted = False
        """Whether this attempt was preempted."""
        self._ended_by = self._limit = ""
        """Why the job has to end early, and the reason to report if it has to end at `_run_by`."""
        self._kill_at: float | None = None
        self._run_by = self._upload_until = self._cut_at = float("inf")
        self._resumed = self._clock()
        """When this submission began to run."""
        self._repeats = ""
        """Why another attempt would fail in the same way."""
        self._not_continued: PlatformError | None = None
        """Why the scheduler does not start the next attempt, although one is left."""
        retry_policy.default.warn = self._warn
        self._ends = self._watch({})
        self._spares = SpareHosts(hosts, self._warn, clock)
        self._looked_at = 0.0
        self._summary = JobSummary(folder, self._events)
        self._stop_marked = self._clock_was_set = False

    def run(self) -> None:
        for number in ENDING:
            signal.signal(number, self._on_signal)
        handle(PREEMPT, self._on_preemption)
        handle(NATIVE_STACKS, signal.SIG_IGN)  # runtimes inherit this until they have installed a handler
        unblock(ENDING)  # see zipapp_main, and wait_for_job
        is_last = self._begin()
        failure = None
        while not is_last:
            failure = self._run_attempt()
            if self._was_taken_back(failure):
                failure = None if failure and failure.signal == signal.SIGTERM else failure
                self._signalled, self._preempted = False, True
                self._ended_by = self._limit if self._is_near_max_run else ""
            code = _CODES.get(self._signal)
            if failure and code and was_interrupted(failure, code, by_keyboard=self._signal == INTERRUPT):
                failure = None
            why = failure.summary() if failure else TAKEN_BACK[self._cause]
            reclaimed = () if self._kill_at or self._preempted else self._host_events.reclaimed
            step, free = self._summary.last_step(), self._spares.free
            decision = decide(self._record, failure, step, self._request, free, reclaimed)
            self._record, is_last, self._repeats = decision.record, not decision.restarts, decision.repeats
            if failure is None or failure.failure_class == FailureClass.HOST_LOST:
                self._spares.expect(decision.lost, LOST_SECONDS if failure else RECLAIMED_SECONDS)
            is_stopped = self._is_stopped
            if (
                failure and (is_stopped or self._ended_by) and not is_last
            ):  # without the stop, it would be retried
                self._warn(f"before the stop, this attempt failed: {why}")
                failure = None
            if self._ends.are_completed or self._ended_by or is_stopped or is_last:
                break
            continuation = None if failure or decision.lost else self._continuation
            if continuation and not self._may_continue(continuation):
                break
            if self._notifications:
                self._notifications.attempt_ended(self._record, failure, why)
            self._record = decision.budget.spend(self._record)
            self._events.emit("retry", attempt=self._record.attempt, failure=why)
            self._hosts.assign(self._record.left_out, self._record.dropped)
            if continuation:
                if self._hand_over(continuation):
                    return
                break
            spent = decision.budget.describe(self._record, self._request)
            self._record, places = moved(self._record, self._hosts.names)
            self._say(f"[cloudtrain] {why}; restarting, {spent}{places and f': {places}'}")
        self._finish(failure)

    def _begin(self) -> bool:
        """Record that the job runs, possibly after earlier submissions. Returns whether no attempt is left."""
        steady.pass_on()
        record, now = self._record, steady.now()
        is_spent = False
        if (
            record.resumed_at is not None
        ):  # its supervisor was lost with its host, and the scheduler restarts it
            seen = self._folder.last_life() or now
            ran = record.ran + min(max(seen - record.resumed_at, 0.0), now - record.resumed_at)
            record = replace(record, ran=ran)
            decision = decide(record, None, self._summary.last_step(), self._request)
            record, is_spent = decision.record, not decision.restarts
            self._events.emit("queued", since=seen)
            if not is_spent:
                if self._notifications:
                    self._notifications.attempt_ended(record, None, LOST)
                record = PREEMPTIONS.spend(record)
                self._events.emit("retry", attempt=record.attempt, failure=LOST)
                self._say(f"[cloudtrain] {LOST}; restarting, {PREEMPTIONS.describe(record, self._request)}")
        self._record = record
        started_at = record.started_at or now
        me = {
            "pid": os.getpid(),
            "process": identity(os.getpid()),
            "clock": steady.clock(),
            "resources": self._hosts.resources,
            "metrics": None,  # clear those of an earlier end, after which the job was continued
        }
        self._update(status=JobStatus.RUNNING, started_at=started_at, resumed_at=now, **me)
        # monotonic: a step of the clock must not end the job
        self._resumed = self._clock()
        self._set_limit()
        if self._continuation and record.attempt:
            self._say(f"[cloudtrain] attempt {record.attempt + 1}: {self._continuation.place}")
            self._record = replace(self._record, dropped=())  # the scheduler has chosen the hosts again
        return is_spent

    @property
    def _ran(self) -> float:
        """Seconds for which the job has held its hosts, by a monotonic clock."""
        return self._record.ran + self._clock() - self._resumed

    def _set_limit(self) -> None:
        seconds, self._limit = limit_of(self._request)
        self._run_by = self._resumed + seconds - self._record.ran

    def _take_price(self) -> None:
        """Fix the price of the attempt that starts now. Earlier attempts keep their prices."""
        terms = self._request.get("cost_terms")
        if not terms:
            return
        table, ran, day = terms, 0.0, day_of(steady.now())
        if self._record.attempt:
            ran = self._ran
            try:
                table = self._terms_now(terms, day) if self._terms_now else terms
            except (CloudtrainError, OSError) as error:
                self._warn(f"the table of prices cannot be read, so the price stays: {error}")
        changed = terms_of_attempt(terms, table, ran, day)
        if changed is terms:
            return
        self._record = replace(self._record, cost_terms=changed)
        self._request = self._record.priced(self._request)
        self._set_limit()
        if self._notifications:
            self._notifications.price(self._request)
        price = money(changed["per_hour"], changed.get("currency") or "USD")
        self._say(f"[cloudtrain] from this attempt on, an hour of all hosts costs {price}")

    def _may_continue(self, continuation: Continuation) -> bool:
        try:
            continuation.check_next(self._cause)
        except PlatformError as error:
            self._not_continued = error
        return self._not_continued is None

    def _hand_over(self, continuation: Continuation) -> bool:
        """Leave the next attempt to the scheduler. Returns whether there will be one."""
        ran = self._ran
        budget = PREEMPTIONS.describe(self._record, self._request)
        self._say(f"[cloudtrain] {TAKEN_BACK[self._cause]}; waiting to restart, {budget}")
        self._events.emit("queued", since=steady.now())
        self._update(status=JobStatus.PENDING, pid=None, process="", ran=ran, resumed_at=None)
        try:
            self._say(f"[cloudtrain] {continuation.start_next()}")
        except PlatformError as error:
            self._not_continued = error
            return False
        return True

    def _run_attempt(self) -> FailureReport | None:
        """Run the attempt with the number in the record. Returns None if no host failed."""
        self._kill_at, self._preempted = None, False
        self._hosts.assign(self._record.left_out, self._record.dropped)
        if self._hosts.may_lose_some:
            hosts, spares = tuple(self._hosts.names), tuple(self._hosts.spares)
            self._record = replace(self._record, hosts=hosts, spares=spares)
        self._take_price()
        is_spent = RETRIES.is_spent(self._record, self._request)
        self._hosts.restarts_here = not is_spent and not self._hosts.may_lose_some
        self._hosts.ran = round(self._ran, 1) if self._record.attempt else 0.0
        self._update()
        self._events.emit("attempt", attempt=self._record.attempt, **price_of(self._request))
        until = self._clock() + RETRY_SECONDS
        while True:
            try:
                failure = self._attempt(self._record.attempt)
            except OSError as error:
                if not is_full(error):
                    raise
                failure = self._disk_is_full(error)
            if not (failure and found_no_space(failure)) or self._signalled or self._clock() > until:
                break
            time.sleep(1)  # another program may have freed space by then
        for lost in self._ends.lost_late.values():
            self._warn(lost_late(lost))
        return failure

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signalled, self._signal = True, _REASONS.get(number, SIGNAL)

    def _on_preemption(self, _number: int, _frame: object) -> None:
        self._noticed = True

    def _judge_notice(self) -> None:
        """Let a notice take effect once all of the remaining time is needed to end."""
        if not self._noticed:
            return
        if self._give_up_at is None:
            spare = self._continuation.spare_seconds() if self._continuation else 0.0
            self._give_up_at = self._clock() + spare
        if self._clock() >= self._give_up_at:
            self._noticed, self._give_up_at, self._preempted = False, None, True

    def _attempt(self, attempt: int) -> FailureReport | None:
        """Run all hosts once. Returns None if no host failed."""
        self._ends = self._watch({})
        self._spares.begin()
        again(self._hosts.prepare)
        self._host_events.begin((*self._hosts.names, *self._hosts.spares))
        if self._clock() > self._run_by:  # a higher price may have used up the rest of the cap
            self._end_early(self._limit)
        if not (self._has_stop_mark or self._ended_by):
            with again(self._folder.open_log) as log:
                self._ends = self._watch(self._hosts.start(attempt, log.fileno()))
        while self._ends.are_running:
            time.sleep(POLL_SECONDS)
            self._judge_signal()
            self._judge_notice()
            if self._signalled:
                self._end_early(self._signal)
            elif self._preempted and self._kill_at is None:
                self._give_up_hosts()
            if self._clock() > self._run_by:
                self._end_early(self._limit)
            self._look_into_folder()
            self._ends.look()
            if not self._is_ending():
                self._spares.look()
                self._take_hosts_back()
            if self._kill_at is None and self._ends.wait_in_vain:
                self._stop_runtimes()
            self._ends.abandon_the_lost()
            if self._kill_at is not None and self._clock() > self._kill_at:
                self._ends.send_signal(SIGKILL)
        self._spares.end()
        self._host_events.finish()
        failure = self._ends.failure()
        self._upload_until = min(self._run_by, self._clock() + UPLOAD_SECONDS)
        self._cut_at = self._run_by + self._stop_grace + LAST_UPLOAD_SECONDS
        retry_policy.default.until, retry_policy.default.cut = self._end_of_upload, self._cut_of_upload
        try:
            return self._hosts.finish(failed=failure is not None) or failure
        finally:
            retry_policy.default.until = retry_policy.default.cut = None

    def _take_hosts_back(self) -> None:
        for name in self._spares.come_back():
            self._record = came_back(self._record, name, self._hosts.spares)
            self._host_events.add(name)
            self._update()
            self._inform(f"host {name} can be reached again: it joins as a spare host")

    def _watch(self, runtimes: Mapping[str, RunningHost]) -> HostEnds:
        return HostEnds(runtimes, self._hosts.report, self._is_ending, self._host_timeout, self._clock)

    def _end_of_upload(self) -> float:
        """The monotonic time until which `Hosts.finish` waits for storage that is unavailable."""
        if self._is_ending():
            self._upload_until = min(self._upload_until, self._clock() + self._stop_grace)
        return self._upload_until

    def _cut_of_upload(self) -> float:
        """The monotonic time at which `Hosts.finish` has to end, even if the storage answers."""
        if self._is_ending():
            self._cut_at = min(self._cut_at, self._clock() + self._stop_grace + LAST_UPLOAD_SECONDS)
        return self._cut_at

    def _give_up_hosts(self) -> None:
        """End the attempt after a preemption or at the submission's time limit; the job, if its own end is as near."""
        if self._is_near_max_run:
            self._end_early(self._limit)
        else:
            self._stop_runtimes()

    @property
    def _is_near_max_run(self) -> bool:
        notice = self._continuation.notice_seconds if self._continuation else 0.0
        return self._clock() > self._run_by - notice

    def _judge_signal(self) -> None:
        """Treat a signal to end as a preemption if the scheduler sent it in order to take the hosts back."""
        if not self._signalled or self._ended_by or self._has_stop_mark:
            return
        if self._continuation and self._continuation.takes_back():
            self._signalled, self._preempted = False, True

    def _was_taken_back(self, failure: FailureReport | None) -> bool:
        """Whether the scheduler takes the hosts back. It sends SIGTERM, to ranks too, and may report why only later."""
        if not self._continuation or self._ends.are_completed or self._has_stop_mark:
            return False
        deadline = self._clock() + TAKEN_BACK_SECONDS
        if self._ended_by == self._signal == SIGNAL and self._kill_at is not None:
            deadline = self._kill_at - self._stop_grace - self._hosts.end_seconds + TAKEN_BACK_SECONDS
        elif failure is None or failure.signal != signal.SIGTERM:
            return False
        while not self._continuation.takes_back():
            if self._clock() > deadline:
                return False
            time.sleep(ASK_SECONDS)
        return True

    @property
    def _is_stopped(self) -> bool:
        self._judge_signal()
        return self._signalled or self._has_stop_mark

    @property
    def _has_stop_mark(self) -> bool:
        """Whether the user has requested the stop, as far as the folder could be read."""
        if not self._stop_marked:
            with contextlib.suppress(OSError):
                self._stop_marked = exists(self._folder.stop_mark)
        return self._stop_marked

    def _is_ending(self) -> bool:
        self._judge_notice()
        return self._is_stopped or self._preempted or bool(self._ended_by)

    def _end_early(self, why: str) -> None:
        """Forward the stop to every host."""
        if self._ended_by:
            return
        self._ended_by = why
        self._update(status=JobStatus.STOPPING)
        self._stop_runtimes()

    def _stop_runtimes(self) -> None:
        """Request every host to end within the grace."""
        self._kill_at = self._clock() + self._stop_grace + self._hosts.end_seconds
        self._ends.send_signal(signal.SIGTERM)

    def _look_into_folder(self) -> None:
        """Once in `Hosts.look_seconds`, copy the hosts' events, and end the job if its folder has a stop mark."""
        now = self._clock()
        if now - self._looked_at < self._hosts.look_seconds:
            return
        self._looked_at = now
        self._folder.show_life(self._lock)
        self._look_at_clock()
        self._keep_courier()
        self._host_events.collect()
        self._summary.update_if_large()
        if self._notifications:
            self._notifications.look_at_cost(self._record, self._ran)
            self._notifications.look_at_hangs(self._record, self._host_events.hangs)
        self._look_for_stack_request()
        if self._has_stop_mark:
            self._end_early(SIGNAL)
            return
        with contextlib.suppress(OSError):  # a shared folder that does not respond was not removed
            if not exists(self._folder.path):
                self._end_early("its folder was removed")

    def _look_for_stack_request(self) -> None:
        with contextlib.suppress(OSError):
            request = self._folder.take_stack_request()
            number = own_number(NATIVE_STACKS if request == FOR_NATIVE_STACKS else STACKS)
            if request and number is not None:
                self._ends.request_stacks(number)

    def _look_at_clock(self) -> None:
        """Warn once if the clock was set."""
        ahead = steady.step()
        if ahead and not self._clock_was_set:
            self._clock_was_set = True
            way = "ahead" if ahead > 0 else "back"
            self._warn(
                f"the clock of this machine was set {way} by {abs(ahead):.0f} s: this job keeps the time of before"
            )

    def _finish(self, failure: FailureReport | None) -> None:
        stopped = self._has_stop_mark
        reason = ""
        if failure is not None:
            status, code, reason = JobStatus.FAILED, failure.exit_code or 1, self._repeats
            if reason:
                code = REPEATED_CODE
                self._say(f"[cloudtrain] {failure.summary()}; not restarting: {reason}")
        elif self._ends.are_completed:
            status, code = JobStatus.COMPLETED, 0
        else:
            why = self._ended_by or (self._signal if self._signalled else PREEMPTED)
            if why == self._limit:
                why += spent(self._request, self._ran)
            reason = STOPPED_BY_USER if stopped else why
            status = (
                JobStatus.INTERRUPTED
                if reason in (SIGNAL, HANGUP, INTERRUPT, PREEMPTED)
                else JobStatus.STOPPED
            )
            code = _CODES.get(reason, INTERRUPTED)
            if reason == PREEMPTED:
                failure = preemption_report(self._cause, self._not_continued, self._request)
                reason = TAKEN_BACK[self._cause]
        self._save_left_memory()
        warnings = disk_warnings(self._folder.path)
        self._record = self._summary.with_results(replace(self._record, ended_at=steady.now()), self._request)
        self._folder.reserve.release()
        with contextlib.suppress(OSError):  # the folder was removed
            self._events.emit("job", status=str(status), exit_code=code)
        self._update(status=status, exit_code=code, failure=failure, reason=reason, warnings=warnings)
        self._folder.reserve.remove()

    def _save_left_memory(self) -> None:
        """Save what the runtimes have left in memory for a next attempt, because there is none."""
        hosts = [self._folder.host(name) for name in self._hosts.everyone]
        run_id = new_run_id(self._folder.name, self._record.submitted_at)
        environ = self._hosts.storage_environment
        save_left_memory(hosts, run_id, environ, self._stop_grace, self._inform, self._warn)

    def _disk_is_full(self, error: OSError) -> FailureReport:
        """End the hosts of an attempt that could not begin, if any. Returns its report."""
        self._ends.send_signal(SIGKILL)
        self._hosts.finish(failed=True)
        self._ends = self._watch({})
        return disk_full_report(self._folder.path, self._record.attempt, error)

    @cached_property
    def _cause(self) -> FailureClass:
        """Why this submission has to give up its hosts."""
        return self._continuation.cause() if self._continuation else FailureClass.PREEMPTED

    def _update(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        with contextlib.suppress(OSError):  # a full disk or a removed folder must not end the job
            self._folder.write_record(self._record)

    def _warn(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._events.emit("warning", message=message)
        self._inform(message)

    def _inform(self, message: str) -> None:
        self._say(f"[cloudtrain] {message}")

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk
            self._folder.append_to_log(line + "\n")


def supervise(
    folder: JobFolder,
    hosts: Hosts,
    continuation: Continuation | None = None,
    *,
    lock: int | None = None,
    terms_now: TermsNow | None = None,
    keep_courier: Callable[[], None] = lambda: None,
) -> None:
    """Run the job in ``folder`` on ``hosts`` until it ends or, with ``continuation``, until the hosts are taken back.

    Args:
        lock: the descriptor of the lock that shows that this process supervises the job.
        terms_now: returns the terms of a job with the prices of a day, if the table can be reread.
        keep_courier: restarts the courier if it has ended. It is called regularly.
    """
    try:
        Supervisor(folder, hosts, continuation, lock, terms_now=terms_now, keep_courier=keep_courier).run()
    except BaseException:
        hosts.finish(failed=True)
        raise
