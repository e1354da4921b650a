"""The platform protocol, and the abilities that only some platforms have."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.observe.metric_series import Point
from cloudtrain.platforms.described_names import DescribedNames
from cloudtrain.storage import Progress, Store

if TYPE_CHECKING:
    from cloudtrain.cost.so_far import Cost
    from cloudtrain.errors import CloudtrainError
    from cloudtrain.observe import Goodput, Sample, Summary
    from cloudtrain.observe.stacks import StackDump
    from cloudtrain.platforms.checks import Check
    from cloudtrain.spec import TrainingJob


@dataclass(frozen=True)
class Request:
    """The exact request to a platform, as data.

    ``body`` can be shown and stored: a variable that is likely to hold a secret has the value ``***`` there. Only
    ``secrets`` has its real value.
    """

    platform: str
    job_name: str
    body: Mapping[str, Any]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        """The part that people read: the batch script of a platform that submits one, else the body."""
        script: str | None = self.body.get("script")
        return script.rstrip("\n") if script is not None else self.to_json()

    @property
    def note(self) -> str:
        """The choice of the platform for the user, and why, for the line that reports the submission."""
        return ""

    @property
    def preview(self) -> str:
        """`shown` for a terminal, which may leave out files of no interest to readers."""
        return self.shown

    def to_json(self) -> str:
        """The body as ``--dry-run`` prints it, with ``--json`` on every platform."""
        text = json.dumps(self.body, indent=2, ensure_ascii=False)
        # bytes of a command line that are not UTF-8 are lone surrogates: \udcff is also how JSON writes them
        return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class HostState:
    """One host of a job, as its platform sees it."""

    name: str
    state: str
    """The phase that it is in, how it ended, or the platform's own name for its state."""
    message: str = ""
    """More about it, for display: its node, its restarts, why it waits."""
    done: int = 0
    """Bytes that it has moved in this phase."""
    total: int = 0
    """Bytes that it has to move in this phase; 0 if that is not known."""


@dataclass(frozen=True)
class JobDescription(DescribedNames):
    """A job's state and results so far. Times are in seconds since the epoch, durations in seconds."""

    name: str
    platform: str
    status: JobStatus
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    attempt: int = 0
    exit_code: int | None = None
    """The job's exit code: 0, or that of the rank that failed first. None while it runs."""
    failure: FailureReport | None = None
    reason: str = ""
    """Why it ended early, if it did not fail."""
    phase: str | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each phase took, on the slowest host."""
    hosts: Sequence[HostState] = ()
    """The hosts of the last attempt, where the platform knows them."""
    step: int | None = None
    """The last training step that the script reported."""
    total_steps: int | None = None
    """The number of the last step of the training, if the script reported it."""
    progress: float | None = None
    """``step`` / ``total_steps``, from 0 to 1; None if one of them is unknown."""
    step_rate: float | None = None
    """Steps per second, of the last steps; None if it is unknown, and while no script runs."""
    remaining_seconds: float | None = None
    """Until the last step, at that rate; None if it is unknown."""
    stalled_seconds: float | None = None
    """Since the last step, if that is long in comparison with the steps before it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    metric_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The smallest and the largest value of each metric, where known: means of the ranks that logged a step."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """The last sample of each host of the last attempt, where the platform knows them."""
    goodput: Goodput | None = None
    """The share of the job's time that went into training steps, and what became of the rest."""
    model_data: str | None = None
    output_data: str | None = None
    warnings: Sequence[str] = ()
    """Problems that did not fail the job; the last few."""
    checkpoint_uri: str | None = None
    git_commit: str | None = None
    """The commit of the source; ends with ``-dirty`` if files differed from it."""
    place: str = ""
    """The location of the job: a folder, or a page of a console."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts that only this platform has, for display: billable time, savings through spot instances."""
    looked_at: float | None = field(default=None, repr=False, compare=False)
    """The moment of this description on the clock that its times are from; None: the time of day."""
    answer: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """SageMaker's own response to DescribeTrainingJob; None on other platforms."""
    request: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """The body of the job's request, if it was read for this description."""
    cost: Cost | None = field(default=None, repr=False, compare=False)
    """The cost of the job so far, if it was calculated for this description: see `cost_so_far`."""
    is_end: bool = field(default=False, repr=False, compare=False)
    """Whether this is an outline with all that the history keeps of an end: exit code, metrics, and cost if known."""

    def to_dict(self) -> dict[str, Any]:
        return {
            **{
                name: value
                for name, value in vars(self).items()
                if name not in ("answer", "looked_at", "request", "cost", "is_end")
            },
            "status": str(self.status),
            "failure": self.failure.to_dict() if self.failure else None,
            "hosts": [asdict(host) for host in self.hosts],
            "samples": {host: sample.to_dict() for host, sample in self.samples.items()},
            "goodput": asdict(self.goodput) if self.goodput else None,
        }


class Platform(Protocol):
    """A place where jobs run. A job is known by its name, which is unique on its platform."""

    name: str

    def render(self, job: TrainingJob) -> Request:
        """The request for ``job``, which has a name and, if it has an entry point, a packed source.

        Pure: the result depends on ``job`` alone. It opens no connection and writes no file. A platform that must ask
        for something first, such as an account or an image, does so in `Resolver.resolve`.

        Raises InvalidJob if this platform cannot run the job.
        """

    def submit(self, request: Request) -> None:
        """Submit a rendered request, and return when the platform has accepted it.

        Raises JobExists, another PlatformError or a StorageError; then nothing is left behind.
        """

    def describe(self, job_name: str) -> JobDescription:
        """Raises JobNotFound."""

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        """The lines that ranks printed, each with its rank as prefix; with ``follow``, until the job ends.

        Raises JobNotFound.
        """

    def stop(self, job_name: str) -> None:
        """Stop the job: ranks get SIGTERM and a grace period. Raises JobNotFound."""

    def list(self) -> Iterator[JobDescription]:
        """All jobs that the platform knows, the newest first."""


@runtime_checkable
class Outlines(Protocol):
    """The ability to describe thousands of jobs for a table."""

    def outlines(self, job_names: Sequence[str]) -> Iterator[JobDescription | CloudtrainError]:
        """The status, times, progress, cost, failure and reason of each job, in the order of the names. See ``is_end``.

        In the place of a job about which they are unknown is why.
        """


@runtime_checkable
class Resolver(Protocol):
    """The ability to fill in what a description leaves to the platform."""

    def resolve(self, job: TrainingJob) -> TrainingJob:
        """``job`` with every value that only the platform knows, such as its account's bucket, role or image.

        Called once, before `Platform.render`, which gets the result. It may use the network and look at this machine,
        but changes nothing. The job has a name; its source is packed, but has no URI yet.

        Raises InvalidJob if this platform cannot run the job, PlatformError if it does not answer.
        """


@runtime_checkable
class Naming(Protocol):
    """The ability to restrict the names that cloudtrain generates for jobs."""

    def base_name(self, base: str) -> str:
        """The nearest start of a job's name that the platform accepts. The time and random characters follow it."""


@runtime_checkable
class JobWarnings(Protocol):
    """The ability to warn about a job that the platform runs otherwise than described."""

    def job_warnings(self, job: TrainingJob) -> list[str]:
        """Warnings, one sentence each. ``job`` is resolved."""


@runtime_checkable
class WarmUp(Protocol):
    """The ability to start a job faster if it is announced in advance."""

    def warm_up(self) -> None:
        """Announce that a job is being prepared, and will probably be submitted soon. Returns immediately."""


@runtime_checkable
class Withdrawal(Protocol):
    """The ability to take a job back whose submission was interrupted, so that it can be submitted again."""

    def was_interrupted(self, job_name: str) -> bool:
        """Whether nothing lets this job run, because the client that submitted it was killed. False if that is unknown.

        Raises JobNotFound, PlatformError.
        """
        ...

    def withdraw(self, job_name: str) -> bool:
        """Remove such a job. Only for a client that knows that no other submits it now. Returns whether it was one.

        Raises JobNotFound, PlatformError.
        """
        ...


@runtime_checkable
class Resubmission(Protocol):
    """The ability to submit a job again that the platform could not start, while someone waits for the job."""

    def resubmission(
        self, job: TrainingJob, request: Request
    ) -> Callable[[Callable[[str], object]], bool] | None:
        """A function to call when the job, which was just submitted, has failed; None if it does not request this.

        The function gets one that shows a line to the user. It may wait, then submits the job again under its name, and
        returns whether it did: not if the job failed for another reason. Raises PlatformError.
        """


@runtime_checkable
class Arrays(Protocol):
    """The ability to start many jobs of one description together."""

    def render_array(self, name: str, jobs: Sequence[TrainingJob]) -> str:
        """The script that starts jobs called ``NAME-0``, ``NAME-1`` and so on; ``--dry-run`` prints it. Pure.

        Raises InvalidJob if the platform cannot start them together.
        """

    def submit_array(self, script: str, requests: Sequence[Request]) -> None:
        """Submit the jobs, in the order of the array, with what `render_array` returned.

        Raises JobExists, another PlatformError or a StorageError; then nothing is left of any of them.
        """


@runtime_checkable
class Preemption(Protocol):
    """The ability to simulate a preemption, as a cloud or a scheduler causes one."""

    def preempt(self, job_name: str) -> None:
        """Preempt the job's hosts, with the usual grace period. The job is then restarted.

        Raises JobNotFound, or PlatformError if the job does not run.
        """


@runtime_checkable
class Upkeep(Protocol):
    """The ability to do what a job needs while a client waits for it, such as giving up one that cannot start.

    It is the only way in which a client changes a job unasked: methods that read jobs change nothing.
    """

    def upkeep(self, job_name: str) -> AbstractContextManager[None]:
        """Does so until its body ends. Raises JobNotFound."""


@runtime_checkable
class PendingOutputs(Protocol):
    """The ability to upload the outputs of a completed training later, if the storage was unavailable when it ended."""

    def upload_outputs(self, job_name: str, progress: Progress | None = None) -> Mapping[str, str]:
        """Upload what could not be uploaded; then the job is complete. Returns the URI of each kind of output.

        Raises JobNotFound; PlatformError if the job runs or its training is not complete; StorageError if the storage
        failed again.
        """


@runtime_checkable
class Notifications(Protocol):
    """The ability to keep the notifications of a job with it: other platforms keep no account of what was sent."""

    def outbox(self, job_name: str) -> Path:
        """The folder on this machine that has the job's `cloudtrain.runtime.notifications.outbox.Outbox`.

        Raises JobNotFound, or PlatformError if it is on another machine.
        """


@runtime_checkable
class AccountStorage(Protocol):
    """The ability to keep sources and outputs of jobs in storage of the platform's account."""

    def code_location(self, job: TrainingJob) -> str:
        """The URI for the source of ``job``: its ``code_location``, or the account's default."""

    def open_store(self, uri: str) -> Store:
        """The store below ``uri``, with the credentials of the account."""

    def upload(
        self, path: Path, uri: str, progress: Progress | None = None, *, kms_key: str | None = None
    ) -> None:
        """Copy a file to ``uri``, unless it exists: the URI contains a hash of the content. Raises StorageError.

        Args:
            kms_key: the key to encrypt it with. Passed only for a job that has an ``output_kms_key``.
        """


@runtime_checkable
class Downloads(Protocol):
    """The ability to copy outputs of jobs from a machine whose file system is not mounted here."""

    def download(
        self, job_name: str, uri: str, folder: Path, progress: Progress | None = None
    ) -> Path | None:
        """Copy the file or the folder at ``uri`` into ``folder``, and return its path.

        None if it can be read from here: in S3, or in a folder of this machine. Raises NotFound, StorageError.
        """


@runtime_checkable
class Events(Protocol):
    """The ability to report phases, progress and metrics as they happen."""

    def events(self, job_name: str, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        """The records of ``events.jsonl`` (`cloudtrain.observe`); with ``follow``, until the job ends."""


@dataclass(frozen=True)
class JobState:
    """One state of a job, as the platform names it. ``time`` is its start, in seconds since the epoch."""

    time: float
    name: str
    message: str = ""


@runtime_checkable
class States(Protocol):
    """The ability to report the progress of a job before it prints anything."""

    def states(self, job_name: str) -> list[JobState]:
        """All states so far, in order. The message of the last one may still change. Raises JobNotFound."""


Series = Mapping[str, Sequence[Point]]
"""The values of each metric over time, in order."""


@runtime_checkable
class Metrics(Protocol):
    """The ability to report all values of metrics, not only the last ones."""

    def metrics(self, job_name: str) -> Series:
        """Raises JobNotFound, or PlatformError if access to them is denied."""


@runtime_checkable
class Summaries(Protocol):
    """The ability to summarise the events of a job at a cost that does not grow with their number."""

    def summary(self, job_name: str) -> Summary:
        """The summary of all events so far: a copy. Raises JobNotFound, or PlatformError if access is denied."""


@runtime_checkable
class Stacks(Protocol):
    """The ability to take the stacks of all ranks of a running job."""

    def request_stacks(self, job_name: str, *, native: bool = False) -> None:
        """Request the stacks. Returns immediately; `last_stacks` has the result some seconds later.

        Args:
            native: whether to include native frames, which stops each rank for up to some seconds.

        Raises JobNotFound, or PlatformError if the job has no running ranks.
        """

    def last_stacks(self, job_name: str) -> StackDump | None:
        """The stacks that were taken last, also those of a job that has ended; None if there are none."""


@runtime_checkable
class Prices(Protocol):
    """The ability to report the cost of a job."""

    def cost(self, description: JobDescription) -> Cost | None:
        """The cost so far of the job that was just described; None if its price is not known. Raises PlatformError."""


def cost_so_far(platform: Platform, description: JobDescription) -> Cost | None:
    """The cost of a job over all attempts; None if it has not started, its price is not known, or no one answers."""
    if description.cost is None and isinstance(platform, Prices) and description.started_at is not None:
        with contextlib.suppress(PlatformError):
            return platform.cost(description)
    return description.cost


@dataclass(frozen=True)
class HostOffer:
    """Equal hosts on which a platform could run jobs."""

    place: str
    """A region, a partition, a node, or this machine; the region or partition that prices are for."""
    kind: str = ""
    """The instance type, or the name of the node."""
    gpu: str = ""
    """The name that the platform has for its GPUs; empty if it does not name them."""
    gpus: int | None = None
    """Of one host."""
    hosts: int | None = None
    """The number of hosts that exist, or that the account may use together."""
    free_gpus: int | None = None
    """GPUs of all these hosts that are free now, where the platform knows it."""
    cluster: str = ""


@runtime_checkable
class Places(Protocol):
    """The ability to run jobs at the same time on machines that are given, and that no scheduler gives out."""

    def placed(
        self, fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None
    ) -> Mapping[str, Any]:
        """The fields of job ``number`` of ``jobs`` at the same time, on its own machines, or its own share of one.

        Args:
            per_host: how many jobs share a host; None: none does, or on this machine, the only host, all of them.

        Raises:
            InvalidJob: there are too few machines or GPUs. The message names ``parallel`` or ``trials_per_host``.
        """


@runtime_checkable
class Offers(Protocol):
    """The ability to list the hosts on which jobs could run."""

    def offers(self) -> Sequence[HostOffer]:
        """Those with GPUs, on all clusters in the config file. Raises PlatformError if access is denied."""


@runtime_checkable
class Preflight(Protocol):
    """The ability to find problems that would make a job fail, before it is submitted."""

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        """The checks by name. They may run concurrently, and change nothing.

        Args:
            request: the request to be submitted; None to check only the platform and the user's defaults.
            imports: the modules that the script imports and the source does not contain.
        """


@runtime_checkable
class Export(Protocol):
    """The ability to write a request for another service, which then starts the job, any number of times."""

    export_formats: Sequence[str]

    def export(self, request: Request, kind: str) -> tuple[Mapping[str, Any], Sequence[str]]:
        """The job in the format ``kind`` of the service, as data, and the names of the secrets that are not in it.

        Raises InvalidJob if the service cannot run the job.
        """

    def upload_for(self, request: Request) -> None:
        """Upload what the job needs in addition to its source and data. Raises StorageError."""


@runtime_checkable
class Requests(Protocol):
    """The ability to return the request of a job."""

    def request(self, job_name: str) -> Request:
        """The request that started the job, as far as the platform still has it. Raises JobNotFound."""
