"""Jobs that this machine supervises. Each has a detached process, which holds a lock on the job's folder."""

from __future__ import annotations

import contextlib
import os
import time

from cloudtrain._system.descriptors import check_open_files
from cloudtrain._system.signals import own_number
from cloudtrain.contract import JobStatus, Settings
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.machine_checks import check_bucket, check_input
from cloudtrain.platforms.supervised.client_environ import client_environ
from cloudtrain.platforms.supervised.idle import ACKNOWLEDGE_SECONDS, START_SECONDS, IdleSupervisor
from cloudtrain.platforms.supervised.platform import SupervisedPlatform
from cloudtrain.platforms.supervised.root import JobFiles, LocalRoot
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.storage import uri_scheme


class SupervisorProcess:
    """The `HostLauncher` of this machine. A job is alive as long as its supervisor is.

    Args:
        root: the folders of the jobs.
        module: the supervisor, run as ``python -m <module>``. It waits for its job; see `idle`.
    """

    def __init__(self, root: LocalRoot, module: str) -> None:
        self._root = root
        self._module = module
        self._idle: IdleSupervisor | None = None

    def warm_up(self) -> None:
        """Start the supervisor of the next job now, so that it can load its modules."""
        if self._idle is None:
            self._idle = IdleSupervisor.start(self._module, client_environ())

    def start(self, draft: JobFiles, request: Request) -> None:
        check_storage(request_settings(request.body))
        folder = self._folder(draft)
        folder.log.touch()
        folder.supervisor_log.touch()
        if not folder.reserve.keep():
            raise PlatformError(
                f"the disk of {folder.path.parent} is full",
                hint="Free space on it, or set CLOUDTRAIN_HOME to a folder on another disk.",
            )
        lock = folder.lock()
        if lock is None:
            raise PlatformError(f"another process has locked {folder.path}")
        try:
            # take the lock first, because a job with a record must be alive
            folder.write_record(JobRecord(JobStatus.PENDING, submitted_at=time.time()))
            self._start_process(folder, request, lock)
        finally:
            os.close(lock)

    def signal(self, job: JobFiles, name: str) -> None:
        # if the record is damaged or has no pid, the supervisor finds the stop mark itself
        record, number = job.record(), own_number(name)
        if record.pid is None or number is None or (record.process and not record.names_live_process):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)

    def is_alive(self, job: JobFiles) -> bool:
        try:
            return self._folder(job).is_alive()
        except OSError as error:
            raise PlatformError(
                f"{self._root.place(job.name)}/lock cannot be opened: {error.strerror}",
                hint="The lock shows whether the job runs.",
            ) from error

    def _folder(self, job: JobFiles) -> JobFolder:
        return JobFolder(self._root.path / job.name)

    def _start_process(self, folder: JobFolder, request: Request, lock: int) -> None:
        """Hand the job in ``folder``, a draft, to a supervisor, which publishes it. Raises FileExistsError."""
        check_open_files()
        environ = {**client_environ(), **request.secrets}
        idle, self._idle = self._idle, None
        with open(folder.supervisor_log, "ab") as log:

            def give_to(supervisor: IdleSupervisor, seconds: float) -> bool:
                target = folder.path.with_name(request.job_name)
                return supervisor.take(folder.path, target, environ, lock, log.fileno(), seconds)

            if idle and give_to(idle, ACKNOWLEDGE_SECONDS):
                return
            fresh = IdleSupervisor.start(self._module, environ, errors=log.fileno())
            if fresh and give_to(fresh, START_SECONDS):
                return
        words = folder.supervisor_log.read_text(errors="replace").strip().splitlines()[-1:]
        raise PlatformError(
            f"the supervisor of the job does not start: {''.join(words) or 'it gave no reason'}",
            hint="Check that this machine has memory and processes left, and submit the job again.",
        )


class MachinePlatform(SupervisedPlatform):
    """A platform whose supervisors are processes of this machine."""

    supervisor = ""
    """The module: see `SupervisorProcess`."""
    why_no_spare_hosts = "all hosts are processes of this machine, which cannot replace itself"
    """See `check_lost_hosts`."""

    def __init__(self) -> None:
        root = LocalRoot(self.name)
        self._process = SupervisorProcess(root, self.supervisor)
        super().__init__(root, self._process)

    def warm_up(self) -> None:
        self._process.warm_up()


def check_storage(settings: Settings) -> None:
    """Refuse a job before it starts if its data or the bucket of an output is missing.

    Raises:
        NotFound: a channel is empty or missing, or the bucket of an output is missing.
        AccessDenied, Unreachable: as for any use of that storage.
    """
    for name, uri in settings.channels:
        check_input(name, uri)
    for uri in {settings.output_uri, settings.checkpoint_uri}:
        if uri_scheme(uri) != "file":
            check_bucket(uri)
