"""A platform whose jobs are carried out by a supervisor on this machine: submit, describe, logs, stop, list."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Settings
from cloudtrain.contract.launcher_env import HOROVODRUN, TORCHRUN
from cloudtrain.errors import JobExists, JobNotFound, PlatformError
from cloudtrain.observe import parse_events, read_events, summarize
from cloudtrain.platforms.base import JobDescription, Request, Series
from cloudtrain.platforms.common.request import request_settings
from cloudtrain.platforms.supervised.folder import JobFolder, State, jobs_home
from cloudtrain.platforms.supervised.follow import follow_lines
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.names import clean
from cloudtrain.storage import join_uri, open_store, uri_scheme

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check

LEFT_BEHIND = {
    *astuple(TORCHRUN),
    *astuple(HOROVODRUN),
    *(
        "MASTER_ADDR",
        "MASTER_PORT",
        "CURRENT_HOST",
        "SAGEMAKER_BASE_DIR",
        "SAGEMAKER_JOB_NAME",
        "SAGEMAKER_REGION",
    ),
    *(
        "CLOUDTRAIN_RUN_DIR",
        "CLOUDTRAIN_AGENT_REPORT",
        "CLOUDTRAIN_HEARTBEAT_FILE",
        "CLOUDTRAIN_DIE_WITH_PARENT",
    ),
    *Settings.variables(),
}
"""Variables of a job that this client may itself run in; the new job is not part of that one."""


class SupervisedPlatform(ABC):
    """Its jobs outlive the client; nothing is left of them but a folder."""

    name: str
    supervisor: str
    """The module that is run as the supervisor of a job."""

    def resolve(self, job: TrainingJob) -> TrainingJob:
        """``job`` with the places of its outputs and checkpoints: in its own folder, unless it names others."""
        assert job.job_name, "a job is named before it is resolved"
        root = jobs_home(self.name).as_uri()
        return msgspec.structs.replace(
            job,
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
        settings = request_settings(request.body)
        _check_storage(settings)
        folder = JobFolder.of(self.name, request.job_name)
        try:
            folder.path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            raise JobExists(
                f"there is already a {self.name} job {request.job_name}", hint="Choose another job_name."
            ) from None
        try:
            folder.log.touch()
            folder.supervisor_log.touch()
            folder.write_request(request.to_json())
            lock = folder.lock()
            if lock is None:
                raise PlatformError(f"somebody else has locked {folder.path}")
            try:
                # in this order: who sees the state sees a job that is alive
                folder.write_state(State(JobStatus.PENDING, submitted_at=time.time()))
                self._start_supervisor(folder, request, lock)
            finally:
                os.close(lock)
        except BaseException as error:
            shutil.rmtree(folder.path, ignore_errors=True)
            if isinstance(error, OSError):
                raise PlatformError(f"the job cannot be started: {error}") from error
            raise

    def describe(self, job_name: str) -> JobDescription:
        return self._describe(self._existing(job_name))

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        folder = self._existing(job_name)
        return _lines(folder, folder.log, follow)

    def events(self, job_name: str, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        folder = self._existing(job_name)
        return parse_events(_lines(folder, folder.events, follow))

    def metrics(self, job_name: str) -> Series:
        found: dict[str, list[tuple[float, float]]] = {}
        for event in read_events(self._existing(job_name).events):
            if event["event"] == "metric":
                found.setdefault(event["name"], []).append((event["time"], event["value"]))
        return found

    def stop(self, job_name: str) -> None:
        folder = self._existing(job_name)
        if _settled(folder).status.is_final:
            return
        folder.stop_mark.touch()
        # a supervisor that has not written its pid yet looks for the mark before it starts anything
        pid = folder.read_state().pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def preempt(self, job_name: str) -> None:
        folder = self._existing(job_name)
        state = _settled(folder)
        if state.status.is_final or state.pid is None:
            raise PlatformError(f"job {job_name} is {state.status}: there is nothing to take away from it")
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGUSR1)

    def request(self, job_name: str) -> Request:
        return Request(self.name, job_name, self._existing(job_name).read_request())

    def list(self) -> Iterator[JobDescription]:
        home = jobs_home(self.name)
        folders = [JobFolder(path) for path in home.iterdir()] if home.is_dir() else []
        known = [folder for folder in folders if (folder.path / "state.json").exists()]
        for folder in sorted(known, key=lambda folder: folder.read_state().submitted_at, reverse=True):
            yield self._describe(folder)

    def _existing(self, job_name: str) -> JobFolder:
        folder = JobFolder.of(self.name, job_name)
        if clean(job_name) != job_name or not (folder.path / "state.json").exists():
            raise JobNotFound(
                f"there is no {self.name} job {job_name}", hint="See the jobs with: cloudtrain list"
            )
        return folder

    def _describe(self, folder: JobFolder) -> JobDescription:
        state = _settled(folder)
        summary = summarize(read_events(folder.events))
        settings = request_settings(folder.read_request())
        return JobDescription(
            name=folder.name,
            platform=self.name,
            status=state.status,
            submitted_at=state.submitted_at,
            started_at=state.started_at,
            ended_at=state.ended_at,
            attempt=state.attempt,
            exit_code=state.exit_code,
            failure=state.failure,
            reason=state.reason,
            phase=None if state.status.is_final else summary.phase,
            phases=summary.phases,
            metrics=summary.metrics,
            model_data=summary.uploaded.get("model"),
            output_data=summary.uploaded.get("output"),
            checkpoint_uri=settings.checkpoint_uri or None,
            git_commit=settings.git_commit or None,
            place=str(folder.path),
        )

    def _start_supervisor(self, folder: JobFolder, request: Request, lock: int) -> None:
        environ = {name: value for name, value in os.environ.items() if not _belongs_to_a_job(name)}
        with open(folder.supervisor_log, "ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", self.supervisor, str(folder.path), str(lock)],
                env={**environ, **request.secrets},
                cwd=folder.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock,),
            )


def _check_storage(settings: Settings) -> None:
    """Refuse, before anything starts, what cannot go well.

    Raises:
        NotFound: a channel is empty or missing, or the bucket of an output is.
        AccessDenied, Unreachable: as for any use of that storage.
    """
    for name, uri in settings.channels:
        from cloudtrain.runtime.inputs import locate

        locate(uri, name)
    for uri in {settings.output_uri, settings.checkpoint_uri}:
        if uri_scheme(uri) == "s3":
            open_store(uri).stat(".cloudtrain")  # the cheapest question whose answer needs the bucket


def _belongs_to_a_job(variable: str) -> bool:
    return variable in LEFT_BEHIND or variable.startswith(("SM_", "TORCHELASTIC_"))


def _lines(folder: JobFolder, path: Path, follow: bool) -> Iterator[str]:
    """The lines of a file of the job; with ``follow``, until the job ends."""
    return follow_lines(path, while_=(lambda: not _settled(folder).status.is_final) if follow else None)


def _settled(folder: JobFolder) -> State:
    """The job's state; one whose supervisor is gone without a word is closed as failed, for good."""
    try:
        state = folder.read_state()
        if state.status.is_final:
            return state
        lock = folder.lock()
    except FileNotFoundError:
        raise JobNotFound(f"the folder of job {folder.name} was removed: {folder.path}") from None
    if lock is None:
        return state
    try:
        state = folder.read_state()  # it may have ended between the two looks
        if not state.status.is_final:
            words = folder.supervisor_log.read_text(errors="replace").strip().rpartition("\n")[2]
            failure = FailureReport(
                FailureClass.KILLED,
                f"the supervisor of the job is gone: {words or 'it was killed, or the machine was restarted'}",
                "Submit the job again: it resumes from its last checkpoint.",
                exit_code=137,
                time=time.time(),
            )
            state = replace(
                state, status=JobStatus.FAILED, ended_at=time.time(), exit_code=137, failure=failure
            )
            with contextlib.suppress(OSError):  # a full disk: the next look closes it
                folder.write_state(state)
    finally:
        os.close(lock)
    return state
