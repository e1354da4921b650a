"""A submitted job: its status, logs and results."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.text import print_line
from cloudtrain.errors import JobNotFound, NotFound, PlatformError, StorageError, TrainingFailed, nearest
from cloudtrain.index import find_job, list_jobs
from cloudtrain.platforms import (
    AccountStorage,
    Downloads,
    JobDescription,
    PendingOutputs,
    Platform,
    Preemption,
    Stacks,
    Upkeep,
    get_platform,
)
from cloudtrain.platforms.waiting import patiently, waiting_for
from cloudtrain.storage import Progress, Store, open_store, split_uri
from cloudtrain.storage.uri import own_file

if TYPE_CHECKING:
    from queue import Queue

    from cloudtrain._display.live import LiveCard
    from cloudtrain.observe.stacks import StackDump

POLL_SECONDS = 0.1
LONGEST_POLL_SECONDS = 2.0
MOST_LINES = 10_000
"""The most lines that are read but not printed yet."""


def unknown_job(name: str) -> JobNotFound:
    """The error for a name that no job submitted from this machine has."""
    alike = nearest(name, [entry.name for entry in list_jobs()])
    meant = f"{alike} " if alike.startswith("Did you mean") else ""
    return JobNotFound(
        f"there is no job {name} among those submitted from this machine",
        hint=f"{meant}See them with: cloudtrain list. A job of another machine needs its platform: --platform NAME, "
        "or Job.attach(name, platform). cloudtrain list --platform NAME finds all.",
    )


class Job:
    """A handle on one job. It has no state, but queries the platform for everything.

    >>> job = Estimator(entry_point="train.py").fit(wait=False)  # doctest: +SKIP
    >>> job.wait().model_data                                    # doctest: +SKIP
    's3://bucket/out/train-20261121-120509-k3f9/output/model.tar.gz'
    """

    def __init__(self, name: str, platform: Platform) -> None:
        self.name = name
        self.platform = platform

    @classmethod
    def attach(cls, name: str, platform: str | None = None) -> Job:
        """The job called ``name``. Its platform defaults to that of the job of this name that was submitted from this
        machine, or else was found by ``cloudtrain list --platform``.

        Raises:
            JobNotFound: no job of this name was submitted from this machine, and no platform was given.
        """
        if platform is None:
            entry = find_job(name)
            if entry is None:
                raise unknown_job(name)
            platform = entry.platform
        job = cls(name, get_platform(platform))
        job.describe()
        return job

    @property
    def job_name(self) -> str:
        """`name`, under the SageMaker SDK's name for it."""
        return self.name

    def describe(self) -> JobDescription:
        """The current state and results of the job.

        Like the SageMaker SDK's response, it can also be read by SageMaker's names: ``["TrainingJobStatus"]``.
        """
        return self.platform.describe(self.name)

    @property
    def status(self) -> JobStatus:
        return self.describe().status

    @property
    def failure(self) -> FailureReport | None:
        """The rank that failed first, and why; None if the job did not fail."""
        return self.describe().failure

    @property
    def model_data(self) -> str | None:
        """The URI of the model; None if there is none (yet)."""
        return self.describe().model_data

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric of ``metric_definitions``."""
        return dict(self.describe().metrics)

    def logs(self) -> str:
        """The output of all ranks so far, each line with its rank as prefix."""
        return "".join(f"{line}\n" for line in self.platform.logs(self.name))

    def follow(self) -> Iterator[str]:
        """Yield the lines of `logs` as they are printed, until the job ends."""
        with self.upkeep():
            yield from self.platform.logs(self.name, follow=True)

    def upkeep(self) -> AbstractContextManager[None]:
        """Do what the platform needs while a client waits for the job: see `cloudtrain.platforms.Upkeep`."""
        return self.platform.upkeep(self.name) if isinstance(self.platform, Upkeep) else nullcontext()

    def wait(self, timeout: float | bool | str | None = None, *, logs: bool | str = False) -> Job:
        """Wait until the job has ended, and return it.

        In a notebook, a card shows the job meanwhile. An interrupt leaves the job running.

        Args:
            timeout: the maximum number of seconds to wait. A bool or a string is ``logs``, as in the SageMaker SDK.
            logs: print the output of the ranks meanwhile. False, or the SDK's ``"None"``, prints nothing.

        Raises:
            TrainingFailed: the job failed; the exception has the `FailureReport`.
            TimeoutError: the job has not ended in time. It continues to run.
        """
        if isinstance(timeout, (bool, str)):
            return self.wait(logs=timeout)
        __tracebackhide__ = True  # in a notebook, the traceback of a failed job is that of the cell
        from cloudtrain._display.live import live_card

        prints = bool(logs) and logs != "None"
        with waiting_for(self.name), live_card(self.platform, self.name) as card:
            description = self.until_final(timeout, card, prints=prints)
        self.conclude(description, print_line if prints else None)
        return self

    def conclude(self, description: JobDescription, show: Callable[[str], object] | None) -> None:
        """Show what the job used, and warn if it ended early. Raises TrainingFailed if it failed."""
        __tracebackhide__ = True  # see wait
        names = ("training", "billable", "spot saving")
        used = [f"{name} {description.details[name]}" for name in names if name in description.details]
        if show and used:
            show(", ".join(used))
        if description.status in (JobStatus.STOPPED, JobStatus.INTERRUPTED):
            why = f": {description.reason}" if description.reason else ""
            warnings.warn(
                f"job {self.name} is {description.status}, not Completed{why}. Its model may be incomplete.",
                stacklevel=3,
            )
        if description.status == JobStatus.FAILED:
            unknown = FailureReport(FailureClass.PLATFORM, "the platform does not say why")
            raise TrainingFailed(self.name, description.failure or unknown)

    def until_final(
        self, timeout: float | None = None, card: LiveCard | None = None, *, prints: bool = False
    ) -> JobDescription:
        """Wait for the end of the job, with `upkeep`, and return its final description. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = POLL_SECONDS
        with self.upkeep():
            if prints:
                with card.updating() if card else nullcontext():
                    self._print_logs(timeout)
            while not (description := patiently(self.describe)).status.is_final:
                if card:
                    card.show(description)
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(
                        f"job {self.name} is still {description.status} after {timeout:g} s. It continues. Attach to "
                        f"it again: cloudtrain wait {self.name}"
                    )
                time.sleep(pause)
                pause = min(1.2 * pause, LONGEST_POLL_SECONDS)
        if card:
            card.show(description)
        from cloudtrain.history.refresh import freeze

        freeze(self.platform, description)
        return description

    def _print_logs(self, timeout: float | None) -> None:
        """Print the output until the job ends, or for ``timeout`` seconds."""
        if timeout is None:
            for line in self.platform.logs(self.name, follow=True):
                print_line(line)
            return
        import queue
        import threading

        lines: queue.Queue[str | BaseException | None] = queue.Queue(MOST_LINES)
        threading.Thread(target=self._read_logs, args=(lines,), name="logs", daemon=True).start()
        deadline = time.monotonic() + timeout
        with suppress(queue.Empty):
            while (found := lines.get(timeout=max(deadline - time.monotonic(), 0))) is not None:
                if isinstance(found, BaseException):
                    raise found
                print_line(found)

    def _read_logs(self, lines: Queue[str | BaseException | None]) -> None:
        try:
            for line in self.platform.logs(self.name, follow=True):
                lines.put(line)
        except BaseException as error:
            lines.put(error)
        lines.put(None)

    def rule_job_summary(self) -> list[dict[str, Any]]:
        """The states of the job's SageMaker Debugger rules, as SageMaker reports them; empty on other platforms."""
        found = self.describe()
        names = ("DebugRuleEvaluationStatuses", "ProfilerRuleEvaluationStatuses")
        return [state for name in names for state in found.get(name) or ()]

    def stop(self) -> None:
        """Stop the job: ranks get SIGTERM, and a grace period to write a checkpoint."""
        self.platform.stop(self.name)

    def preempt(self) -> None:
        """Simulate a preemption: ranks get SIGTERM and their grace period, and the job is restarted.

        Raises:
            PlatformError: the job is not running, or its platform does not support preemption.
        """
        if not isinstance(self.platform, Preemption):
            raise PlatformError(f"the platform {self.platform.name} cannot play a preemption")
        self.platform.preempt(self.name)

    def stacks(self, *, native: bool = False, timeout: float = 30.0) -> StackDump:
        """Take the stacks of all ranks, grouped by equal stack, while they continue to run.

        Args:
            native: whether to include native frames, by py-spy or pystack if one of them is installed on the hosts of
                the job. It stops each rank for up to a few seconds.
            timeout: seconds to wait for the answer.

        Raises:
            PlatformError: the job is not running, or its platform cannot take stacks.
            TimeoutError: there was no answer in time.
        """
        if not isinstance(self.platform, Stacks):
            raise PlatformError(
                f"the platform {self.platform.name} cannot reach the ranks of its jobs to take their stacks",
                hint="With hang_timeout, the runtime takes them itself before it ends ranks that hang.",
            )
        before = self.platform.last_stacks(self.name)
        self.platform.request_stacks(self.name, native=native)
        deadline = time.monotonic() + timeout
        pause = POLL_SECONDS
        while time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(1.2 * pause, 1.0)
            found = self.platform.last_stacks(self.name)
            if found and (before is None or found.id != before.id) and found.native >= native:
                return found
        raise TimeoutError(
            f"the first host of job {self.name} did not answer within {timeout:g} s: its runtime starts or ends, or "
            "its machine does not respond"
        )

    def download(
        self, folder: str | Path = ".", progress: Progress | None = None, *, model: bool = True
    ) -> list[Path]:
        """Copy the model and the other outputs into ``folder``, and return their paths.

        Args:
            progress: called with the number of bytes just copied.
            model: false for the other outputs only.

        Raises:
            NotFound: the job has no outputs (yet).
            StorageError: the folder cannot be written, or the storage failed.
        """
        description = self.describe()
        uris = [uri for uri in (description.model_data if model else None, description.output_data) if uri]
        if not uris:
            why = "A script has them if it writes files to the folder SM_MODEL_DIR or SM_OUTPUT_DATA_DIR. Its end:"
            if description.status == JobStatus.FAILED:
                why = "See why it failed:"
            elif not description.status.is_final:
                why = "See how far it is:"
            raise NotFound(
                f"job {self.name} ({description.status}) has no model or other outputs",
                hint=f"{why} cloudtrain describe {self.name}",
            )
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{folder} cannot be created: {error.strerror}", hint="Choose another folder."
            ) from error
        stores = self.platform.open_store if isinstance(self.platform, AccountStorage) else open_store
        paths = []
        for uri in uris:
            path = None
            if isinstance(self.platform, Downloads):
                path = self.platform.download(self.name, uri, Path(folder), progress)
            paths.append(path or _download(stores, uri, Path(folder), progress))
        return paths

    def upload(self, progress: Progress | None = None) -> dict[str, str]:
        """Upload the outputs of a job whose training is complete, but whose upload failed: the storage was unavailable.

        Returns the URI of each kind of output. Uploads nothing if they have been uploaded already.

        Raises:
            PlatformError: the job runs, its training is not complete, or its platform uploads outputs itself.
            StorageError: the storage failed again.
        """
        if not isinstance(self.platform, PendingOutputs):
            raise PlatformError(
                f"the platform {self.platform.name} uploads the outputs of its jobs itself",
                hint="It keeps nothing that could be sent later. Checkpoints are uploaded while a job runs: submit it "
                "again, and it resumes from the last one.",
            )
        return dict(self.platform.upload_outputs(self.name, progress))

    def __repr__(self) -> str:
        return f"<Job {self.name} on {self.platform.name}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """How a notebook shows the job: as a card of HTML, or as text."""
        from cloudtrain._display.live import mime_bundle

        return mime_bundle(self.platform, self.name)


def find_any(name: str, session: Any = None) -> Job:
    """The job with this name that was submitted from this machine, or the SageMaker training job, which may not exist.

    Args:
        session: the AWS session; with it, the job is a SageMaker training job.
    """
    entry = find_job(name) if session is None else None
    if entry is not None and entry.platform != "sagemaker":
        return Job(name, get_platform(entry.platform))
    from cloudtrain.platforms.sagemaker import SageMakerPlatform

    return Job(name, SageMakerPlatform(session))


def _download(stores: Callable[[str], Store], uri: str, folder: Path, progress: Progress | None) -> Path:
    parent, name = split_uri(uri)
    target = own_file(folder, name)
    if stores(parent).stat(name) is not None:
        stores(parent).download(name, target, progress)
    else:  # not compressed: a folder
        from cloudtrain.storage.transfer import check_targets, download_entries, list_tree

        store = stores(uri)
        entries = list_tree(store)
        if not entries:
            raise NotFound(f"{uri} is gone", hint="It was removed after the job had uploaded it.")
        check_targets(folder, [f"{name}/{entry.key}" for entry in entries])
        download_entries(store, entries, target, progress=progress)
    return target
