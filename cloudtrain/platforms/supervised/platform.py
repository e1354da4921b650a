"""A platform whose jobs live in job folders: submit, describe, logs, events, metrics, stop, list."""

from __future__ import annotations

import contextlib
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Settings
from cloudtrain.contract.preemption import PREEMPT, STOP
from cloudtrain.contract.request_body import argument_details, request_settings
from cloudtrain.contract.text import by_number
from cloudtrain.errors import CloudtrainError, JobExists, JobNotFound, PlatformError
from cloudtrain.observe import parse_events, steady
from cloudtrain.observe.metric_series import metric_series
from cloudtrain.platforms.base import HostState, JobDescription, Request, Series
from cloudtrain.platforms.supervised.root import JobFiles, JobRoot, LocalRoot, follow_lines
from cloudtrain.runtime.supervisor.folder import (
    EVENTS,
    FOR_NATIVE_STACKS,
    FOR_STACKS,
    LOG,
    REQUEST,
    STACKS_REQUEST,
    STOP_MARK,
    SUMMARY,
    SUPERVISOR_LOG,
    JobFolder,
)
from cloudtrain.runtime.supervisor.places import place_details
from cloudtrain.runtime.supervisor.record import RECORD, STOPPED_BY_USER, JobRecord, lost_late
from cloudtrain.spec.conversion import DEFAULT_MAX_RUN
from cloudtrain.spec.names import clean
from cloudtrain.storage import Progress, join_uri
from cloudtrain.storage.disk_reserve import is_full

if TYPE_CHECKING:
    from cloudtrain.cost.so_far import Cost
    from cloudtrain.observe import Summary
    from cloudtrain.observe.stacks import StackDump
    from cloudtrain.platforms.checks import Check
    from cloudtrain.spec import TrainingJob


SILENT_SECONDS = 120.0
"""How long a supervisor may give no sign of life before users are warned: it gives one at least every few seconds."""


class HostLauncher(Protocol):
    """Starts the hosts of a job, with a process on this machine or a scheduler.

    The process that it starts writes the job's record and its other files; see `folder.JobFolder`.
    """

    def start(self, draft: JobFiles, request: Request) -> None:
        """Start or queue the hosts of a job.

        ``draft`` is its folder, which contains its request and has a temporary name. Writes the first record, which is
        pending, and publishes the folder under the job's name (`JobFiles.publish`) before anything runs. From then on
        `is_alive` is true until the job ends: a job that is not alive has ended. If the process is killed at any
        moment, it leaves either a job, or a folder without the name of a job.

        Raises PlatformError or StorageError if the job cannot be started, or FileExistsError if a job of this name
        exists; then no part of the new job runs, and it leaves no folder under its name.
        """

    def signal(self, job: JobFiles, name: str) -> None:
        """Send a signal to the job: `preemption.STOP` or `preemption.PREEMPT`. Does nothing if it has ended."""

    def is_alive(self, job: JobFiles) -> bool:
        """Whether the job is queued or running, so its record may still change."""


class SupervisedPlatform(ABC):
    """Keeps each job in a folder, local or remote, and runs its hosts with a launcher.

    Jobs outlive the client. When a job has ended, only its folder remains.

    Args:
        root: the folder of all jobs.
        launcher: starts the hosts of a job, which write into its folder.
    """

    name: str
    default_max_run: int | None = DEFAULT_MAX_RUN
    """Seconds after which a job without ``max_run`` is stopped; None if only the scheduler limits it."""
    sends_notifications = True
    """Whether jobs send the notifications of their field ``notify``."""

    def __init__(self, root: JobRoot, launcher: HostLauncher) -> None:
        self._root = root
        self._launcher = launcher

    def resolve(self, job: TrainingJob) -> TrainingJob:
        """``job`` with the URIs of its outputs and checkpoints, which default to its own folder, and its time limit."""
        assert job.job_name, "a job is named before it is resolved"
        import msgspec

        root = self._root.uri
        return msgspec.structs.replace(
            job,
            max_run=job.max_run or self.default_max_run,
            output_path=job.output_path or root,
            checkpoint_s3_uri=job.checkpoint_s3_uri or join_uri(root, job.job_name, "checkpoints"),
        )

    @abstractmethod
    def render(self, job: TrainingJob) -> Request: ...

    @abstractmethod
    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]: ...

    def submit(self, request: Request) -> None:
        with self._refusing(request.job_name):
            draft = self._draft(request)
            try:
                self._launcher.start(draft, request)
            except BaseException:
                self._root.remove(draft.name)
                raise

    def _draft(self, request: Request) -> JobFiles:
        """A new folder, under a temporary name, with the request."""
        draft = JobFiles(self._root, self._root.create(request.job_name))
        try:
            draft.write(REQUEST, request.to_json().encode())
        except BaseException:
            self._root.remove(draft.name)
            raise
        return draft

    @contextlib.contextmanager
    def _refusing(self, job_name: str) -> Iterator[None]:
        """Turns errors of a file system into those of a job that cannot be submitted."""
        try:
            yield
        except CloudtrainError:  # some are OSErrors too
            raise
        except FileExistsError:
            raise JobExists(f"there is already a {self.name} job {job_name}") from None
        except OSError as error:
            if is_full(error):
                raise PlatformError(
                    f"the job cannot be started: {self._root.place(job_name)}: {error.strerror}",
                    hint="Free space there, or keep the jobs in a folder on another disk.",
                ) from error
            raise PlatformError(f"the job cannot be started: {error}") from error

    def describe(self, job_name: str) -> JobDescription:
        from cloudtrain.platforms.supervised import job_summary

        return job_summary.recall(self._named(job_name)) or self._look_at(self._existing(job_name))

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        return self._lines(self._existing(job_name), LOG, follow)

    def events(self, job_name: str, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        return parse_events(self._lines(self._existing(job_name), EVENTS, follow))

    def metrics(self, job_name: str) -> Series:
        return metric_series(self.events(job_name))

    def summary(self, job_name: str) -> Summary:
        from cloudtrain.platforms.supervised import job_summary

        return job_summary.read_summary(self._existing(job_name))

    def cost(self, description: JobDescription) -> Cost | None:
        """See `Prices`: the time for which the job has held its hosts, at the price in its request."""
        request = description.request or self._existing(description.name).request()
        if not request.get("cost_terms"):
            return None
        return _cost(request, self._current(self._existing(description.name)))

    def request_stacks(self, job_name: str, *, native: bool = False) -> None:
        """See `Stacks`: the supervisor of the job finds the request in its folder."""
        job = self._existing(job_name)
        record = self._settled(job)
        if record.status != JobStatus.RUNNING:
            raise PlatformError(
                f"job {job_name} is {record.status}: it has no running ranks",
                hint=f"See the stacks that were taken last: cloudtrain stacks {job_name} --last",
            )
        if job.request().get("runtime", "cloudtrain") != "cloudtrain":
            raise PlatformError(
                f"job {job_name} runs its image's own program: cloudtrain does not watch its ranks"
            )
        job.write(STACKS_REQUEST, FOR_NATIVE_STACKS if native else FOR_STACKS)

    def last_stacks(self, job_name: str) -> StackDump | None:
        from cloudtrain.platforms.supervised import job_summary

        return job_summary.read_summary(self._existing(job_name)).stacks.last

    def stop(self, job_name: str) -> None:
        job = self._existing(job_name)
        if self._settled(job).status.is_final:
            return
        job.write(STOP_MARK, b"")
        self._launcher.signal(job, STOP)

    def preempt(self, job_name: str) -> None:
        job = self._existing(job_name)
        record = self._settled(job)
        if record.status.is_final or record.status == JobStatus.PENDING:
            raise PlatformError(f"job {job_name} is {record.status}: there is nothing to take away from it")
        self._launcher.signal(job, PREEMPT)

    def upload_outputs(self, job_name: str, progress: Progress | None = None) -> Mapping[str, str]:
        """Upload the outputs of a completed job that could not be uploaded when it ended: see `PendingOutputs`."""
        from cloudtrain.platforms.supervised.pending_upload import is_pending, upload_pending

        job = self._existing(job_name)
        record = self._settled(job)
        if is_pending(record):
            if not isinstance(self._root, LocalRoot):
                raise PlatformError(
                    f"the outputs of job {job_name} are in {self._root.place(job_name)}, not on this machine",
                    hint=f"Run there: cloudtrain upload {job_name}",
                )
            upload_pending(JobFolder(self._root.path / job.name), progress or (lambda count: None))
        elif not record.status.is_final:
            raise PlatformError(f"job {job_name} is {record.status}: it uploads its outputs when it ends")
        elif record.status != JobStatus.COMPLETED:
            raise PlatformError(
                f"job {job_name} is {record.status}: its training is not complete, so it has no model to upload",
                hint="Submit the job again: it resumes from its last checkpoint.",
            )
        description = self._look_at(job)
        found = {"model": description.model_data, "output": description.output_data}
        return {kind: uri for kind, uri in found.items() if uri}

    def request(self, job_name: str) -> Request:
        return Request(self.name, job_name, self._existing(job_name).request())

    def list(self) -> Iterator[JobDescription]:
        known = []
        for found in self.outlines([name for name in self._root.names() if clean(name) == name]):
            if isinstance(found, JobDescription):
                known.append(found)
            elif not isinstance(found, JobNotFound):  # else it was removed in the meantime
                raise found
        for job in sorted(known, key=lambda job: job.submitted_at, reverse=True):
            with contextlib.suppress(JobNotFound):
                yield self.describe(job.name)

    def outlines(self, job_names: Sequence[str]) -> Iterator[JobDescription | CloudtrainError]:
        """See `Outlines`: reads the record of each job, and the progress of a running one."""
        for name in job_names:
            try:
                yield self._outline(name)
            except CloudtrainError as error:
                yield error

    def _outline(self, job_name: str) -> JobDescription:
        from cloudtrain.platforms.supervised import job_summary

        try:
            job = self._named(job_name)
            record = self._current(job)
        except JobNotFound:
            raise self._no_job(job_name) from None
        failure = record.failure and replace(record.failure, traceback="", log_tail=(), stacks="")
        steps: dict[str, Any] = {}
        is_end = record.status.is_final and record.metrics is not None
        cost = None
        if is_end and record.cost is not None:
            from cloudtrain.cost.so_far import Cost

            cost = Cost(record.cost, record.currency)
        if record.started_at is not None and not is_end:
            with contextlib.suppress(PlatformError):  # describe() shows the problem
                cost = _cost(job.request(), record)
        now = steady.now_on(record.clock)
        if record.status == JobStatus.RUNNING:
            with contextlib.suppress(PlatformError):  # describe() shows the problem
                steps = job_summary.read_summary(job).steps.result(now, is_running=True)
        metrics = record.metrics or {}
        return JobDescription(
            job_name,
            self.name,
            record.status,
            record.submitted_at,
            record.started_at,
            record.ended_at,
            record.attempt,
            record.exit_code,
            failure=failure,
            reason=record.reason,
            metrics={name: last for name, (last, _, _) in metrics.items()},
            metric_ranges={name: (low, high) for name, (_, low, high) in metrics.items()},
            looked_at=now,
            cost=cost,
            is_end=is_end,
            **steps,
        )

    def lost(self, job: JobFiles) -> FailureReport:
        """Why a job ended without a final record. A platform that can query its scheduler overrides this."""
        words = self._last_words(job) or "it was killed, or the machine was restarted"
        return FailureReport(
            FailureClass.KILLED,
            f"the supervisor of the job is gone: {words}",
            "Submit the job again: it resumes from its last checkpoint.",
            exit_code=137,
            time=time.time(),
        )

    def _last_words(self, job: JobFiles) -> str:
        """The last line that the supervisor printed; empty if there is none."""
        words = ""
        with contextlib.suppress(PlatformError):
            for line in job.lines(SUPERVISOR_LOG):
                words = line.strip() or words
        return words

    def _existing(self, job_name: str) -> JobFiles:
        job = self._named(job_name)
        if not job.exists(RECORD):
            raise self._no_job(job_name)
        return job

    def _named(self, job_name: str) -> JobFiles:
        if clean(job_name) != job_name:  # it may be a path
            raise self._no_job(job_name)
        return JobFiles(self._root, job_name)

    def _no_job(self, job_name: str) -> JobNotFound:
        return JobNotFound(
            f"there is no {self.name} job {job_name}",
            hint=f"See the jobs with: cloudtrain list --platform {self.name}",
        )

    def _look_at(self, job: JobFiles) -> JobDescription:
        from cloudtrain.observe import Summary
        from cloudtrain.platforms.supervised import job_summary

        record = self._current(job)
        summary, request, damage = Summary(), dict[str, Any](), []
        try:
            summary = job_summary.read_summary(job)
        except PlatformError as error:
            damage.append(str(error))
        try:
            request = job.request()
        except PlatformError as error:
            damage.append(str(error))
        description = self._description(job, record, summary, request)
        may_change = False
        if request.get("notify"):
            from cloudtrain.platforms.supervised.notifications import notification_warnings

            now = steady.now_here(record.clock)
            if now is None:  # that machine's clock may differ
                now = min((each.time for each in summary.last_samples().values()), default=None)
            found, may_change = notification_warnings(job, self.name, record, request, now)
            damage += found
        if record.status == JobStatus.RUNNING:
            damage += self._silence(job, record)
        if damage:
            return replace(description, warnings=[*damage, *description.warnings])
        if record.status.is_final and not may_change and job.exists(SUMMARY):
            job_summary.remember(job, description)
        return description

    def _description(
        self, job: JobFiles, record: JobRecord, summary: Summary, request: Mapping[str, Any]
    ) -> JobDescription:
        settings = request_settings(request) if request else Settings()
        now = steady.now_on(record.clock)
        return JobDescription(
            name=job.name,
            platform=self.name,
            status=record.status,
            submitted_at=record.submitted_at,
            started_at=record.started_at,
            ended_at=record.ended_at,
            attempt=record.attempt,
            exit_code=record.exit_code,
            failure=record.failure,
            reason=record.reason,
            phase=summary.phase if record.status in (JobStatus.RUNNING, JobStatus.STOPPING) else None,
            phases=summary.phases,
            hosts=[
                HostState(name, host.state, done=host.done, total=host.total)
                for name, host in sorted(summary.hosts.items(), key=lambda item: by_number(item[0]))
            ],
            **summary.steps.result(now, is_running=record.status == JobStatus.RUNNING),
            metrics=summary.metrics,
            metric_ranges=summary.ranges,
            samples=summary.last_samples(),
            goodput=summary.meter.result(record.submitted_at, record.ended_at, now),
            model_data=_output_uri(summary, settings, "model"),
            output_data=_output_uri(summary, settings, "output"),
            warnings=[*summary.warnings, *record.warnings],
            checkpoint_uri=settings.checkpoint_uri or None,
            git_commit=settings.git_commit or None,
            place=self._root.place(job.name),
            details={
                **({"each host": record.resources} if record.resources else {}),
                **place_details(record),
                **argument_details(request.get("arguments", ())),
                **summary.details,
            },
            looked_at=now,
            request=request or None,
        )

    def _silence(self, job: JobFiles, record: JobRecord) -> Sequence[str]:
        """A warning about a supervisor that exists but does nothing: it was paused, or its disk does not answer."""
        if not isinstance(self._root, LocalRoot):
            return []
        silent = time.time() - (JobFolder(self._root.path / job.name).last_life() or time.time())
        if silent < SILENT_SECONDS:
            return []
        who = (
            f"the supervisor of the job (process {record.pid})" if record.pid else "the supervisor of the job"
        )
        return [f"{who} has given no sign of life for {silent / 60:.0f} min: what is shown may be old"]

    def outbox(self, job_name: str) -> Path:
        """See `Notifications.outbox`."""
        job = self._existing(job_name)
        if not isinstance(self._root, LocalRoot):
            raise PlatformError(
                f"the notifications of job {job_name} are in {self._root.place(job_name)}, not on this machine",
                hint=f"Run there: cloudtrain notify {job_name}",
            )
        return self._root.path / job.name

    def _lines(self, job: JobFiles, file: str, follow: bool) -> Iterator[str]:
        """The lines of a file of the job; with ``follow``, until the job ends."""
        return follow_lines(
            lambda position: job.read_part(file, position),
            while_=(lambda: not self._settled(job).status.is_final) if follow else None,
        )

    def _current(self, job: JobFiles) -> JobRecord:
        """The job's record, as readers see it."""
        record = self._settled(job)
        if (
            record.status == JobStatus.RUNNING and job.is_stopped
        ):  # its supervisor may be uploading the outputs
            return replace(record, status=JobStatus.STOPPING)
        return record

    def _settled(self, job: JobFiles) -> JobRecord:
        """The job's record. If the job died without a final record, writes one."""
        try:
            record = job.record()
            if record.is_damaged:
                record = replace(record, submitted_at=self._submitted_at(job.name) or record.submitted_at)
            if record.is_damaged and self._is_alive(job):
                return replace(record, status=JobStatus.RUNNING, exit_code=None, failure=None)
            if record.status.is_final or self._is_alive(job):
                return record
            record = job.record()  # the job may have ended before it was found not to be alive
        except FileNotFoundError:
            raise JobNotFound(
                f"the folder of job {job.name} was removed: {self._root.place(job.name)}",
                hint=f"See what the history of this machine has: cloudtrain report {job.name}",
            ) from None
        if record.status.is_final:
            return record
        waiting = self._waiting(job, record)
        if waiting:
            return waiting
        record = self._closed(job, record)
        with contextlib.suppress(OSError):  # a full disk: the next call tries again
            job.write_record(record)
        return record

    def _submitted_at(self, job_name: str) -> float | None:
        """The time of submission from the index, for a job whose record cannot be read."""
        from cloudtrain.index import when_submitted

        return when_submitted(job_name, self.name)

    def _is_alive(self, job: JobFiles) -> bool:
        return self._launcher.is_alive(job)

    def _waiting(self, job: JobFiles, record: JobRecord) -> JobRecord | None:
        """The record of a job that is not alive but has not ended, because it was interrupted and may continue."""
        return None

    def _closed(self, job: JobFiles, record: JobRecord) -> JobRecord:
        if record.status == JobStatus.PENDING and job.is_stopped:
            return replace(_stopped(record), ended_at=time.time())
        failure = self.lost(job)
        if job.is_stopped:
            ended_at = self._last_life(job, record)
            return replace(
                _stopped(record), ended_at=ended_at, warnings=(*record.warnings, lost_late(failure))
            )
        preempted = failure.failure_class == FailureClass.PREEMPTED
        return replace(
            record,
            status=JobStatus.INTERRUPTED if preempted else JobStatus.FAILED,
            ended_at=self._last_life(job, record),
            exit_code=failure.exit_code,
            failure=failure,
        )

    def _last_life(self, job: JobFiles, record: JobRecord) -> float:
        """When a job without a final record ended, which may be days before a reader notices it."""
        now = time.time()
        if isinstance(self._root, LocalRoot):
            seen = JobFolder(self._root.path / job.name).last_life()
        else:
            seen = max((event["time"] for event in self.events(job.name) if "time" in event), default=None)
        return now if seen is None else min(max(seen, record.started_at or record.submitted_at), now)


def _cost(request: Mapping[str, Any], record: JobRecord) -> Cost | None:
    """The cost so far of the time for which a job has held its hosts; None if its price is unknown."""
    from cloudtrain.cost.so_far import cost_of

    return cost_of(record.priced(request), record.held_seconds(steady.now_on(record.clock)))


def _stopped(record: JobRecord) -> JobRecord:
    return replace(record, status=JobStatus.STOPPED, exit_code=128 + signal.SIGTERM, reason=STOPPED_BY_USER)


def _output_uri(summary: Summary, settings: Settings, kind: str) -> str | None:
    """The URI of the outputs of a kind, if they were uploaded. The URI in events is ignored."""
    if kind not in summary.uploaded or not settings.output_uri:
        return None
    return join_uri(settings.output_uri, settings.output_key(kind))
