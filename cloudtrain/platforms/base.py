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

    ``body`` is safe to show and store: variables that probably hold secrets have the value ``***`` in it. Their real
    values are only in ``secrets``.
    """

    platform: str
    job_name: str
    body: Mapping[str, Any]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        """The readable part: the batch script, if the platform submits one, else the body."""
        script: str | None = self.body.get("script")
        return script.rstrip("\n") if script is not None else self.to_json()

    @property
    def note(self) -> str:
        """A choice that the platform made for the user, with its reason, for the line that reports the submission."""
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
    """One host of a job, as its platform reports it."""

    name: str
    state: str
    """Its phase, its outcome, or the platform's own name for its state."""
    message: str = ""
    """More about it, for display: its node, its restarts, why it waits."""
    done: int = 0
    """Bytes moved so far in this phase."""
    total: int = 0
    """Bytes to move in this phase; 0 if unknown."""


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
    """The hosts of the last attempt, if the platform reports them."""
    step: int | None = None
    """The last training step that the script reported."""
    total_steps: int | None = None
    """The step at which the script will end, if it reported that."""
    progress: float | None = None
    """``step`` / ``total_steps``, from 0 to 1; None if one of them is unknown."""
    step_rate: float | None = None
    """Steps per second over the last steps; None if unknown, and while no script runs."""
    remaining_seconds: float | None = None
    """Time until the last step at that rate; None if unknown."""
    stalled_seconds: float | None = None
    """Time since the last step, if it is long compared with the steps before it."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    metric_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The minimum and maximum of each metric, where known. Values are means over the ranks that logged a step."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """The last sample of each host of the last attempt, if the platform reports samples."""
    goodput: Goodput | None = None
    """The share of the job's time that went into training steps, and how the rest was spent."""
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
    """Whether this is an outline of an ended job with all that the history keeps: exit code, metrics, cost if known."""

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
    """A place where jobs run. A job is identified by its name, which is unique on its platform."""

    name: str

    def render(self, job: TrainingJob) -> Request:
        """The request for ``job``, which has a name and, if it has an entry point, a packed source.

        Pure: the result depends only on ``job``; no connection is opened and no file is written. A platform that must
        first look something up, such as an account or an image, does so in `Resolver.resolve`.

        Raises InvalidJob if this platform cannot run the job.
        """

    def submit(self, request: Request) -> None:
        """Submit a rendered request, and return when the platform has accepted it.

        Raises JobExists, another PlatformError or a StorageError; in that case nothing remains of the job.
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
        """All jobs on the platform, newest first."""


@runtime_checkable
class Outlines(Protocol):
    """The ability to describe thousands of jobs for a table."""

    def outlines(self, job_names: Sequence[str]) -> Iterator[JobDescription | CloudtrainError]:
        """The status, times, progress, cost, failure and reason of each job, in the order of the names. See ``is_end``.

        For a job about which they are unknown, the item is the error.
        """


@runtime_checkable
class Resolver(Protocol):
    """The ability to fill in the values that a description leaves to the platform."""

    def resolve(self, job: TrainingJob) -> TrainingJob:
        """``job`` with every value that only the platform can provide: its account's bucket, its role or its image.

        Called once, before `Platform.render`, which gets the result. It may use the network and inspect this
        machine, but changes nothing. The job has a name; its source is packed, but has no URI yet.

        Raises InvalidJob if this platform cannot run the job, PlatformError if it does not respond.
        """


@runtime_checkable
class Naming(Protocol):
    """The ability to restrict the names that cloudtrain generates for jobs."""

    def base_name(self, base: str) -> str:
        """The closest prefix that the platform accepts in a job's name. The time and random characters follow it."""


@runtime_checkable
class JobWarnings(Protocol):
    """The ability to warn about a job that the platform cannot run exactly as described."""

    def job_warnings(self, job: TrainingJob) -> list[str]:
        """Warnings, one sentence each. ``job`` is resolved."""


@runtime_checkable
class WarmUp(Protocol):
    """The ability to start a job faster if it is announced in advance."""

    def warm_up(self) -> None:
        """Announce that a job is being prepared, and will probably be submitted soon. Returns immediately."""


@runtime_checkable
class Withdrawal(Protocol):
    """The ability to remove a job whose submission was interrupted, so that it can be submitted again."""

    def was_interrupted(self, job_name: str) -> bool:
        """Whether this job can never run because its client was killed during submission. False if that is unknown.

        Raises JobNotFound, PlatformError.
        """
        ...

    def withdraw(self, job_name: str) -> bool:
        """Remove the job if its submission was interrupted, and return whether it was.

        The caller must be certain that no other client is submitting the job now.
        Raises JobNotFound, PlatformError.
        """
        ...


@runtime_checkable
class Resubmission(Protocol):
    """The ability to resubmit a job that the platform could not start, while a client waits for the job."""

    def resubmission(
        self, job: TrainingJob, request: Request
    ) -> Callable[[Callable[[str], object]], bool] | None:
        """A function to call if the job, which was just submitted, fails; None if the job does not request this.

        Its argument is a function that shows a line to the user. It may wait before it submits the job again under the
        same name. It returns whether it did so: False if the job failed for another reason. Raises PlatformError.
        """


@runtime_checkable
class Arrays(Protocol):
    """The ability to start many jobs of one description together."""

    def render_array(self, name: str, jobs: Sequence[TrainingJob]) -> str:
        """The script that starts jobs called ``NAME-0``, ``NAME-1`` and so on; ``--dry-run`` prints it. Pure.

        Raises InvalidJob if the platform cannot start them together.
        """

    def submit_array(self, script: str, requests: Sequence[Request]) -> None:
        """Submit the jobs, in the order of the array, with the script that `render_array` returned.

        Raises JobExists, another PlatformError or a StorageError; in that case nothing remains of any of them.
        """


@runtime_checkable
class Preemption(Protocol):
    """The ability to simulate a preemption by a cloud or a scheduler."""

    def preempt(self, job_name: str) -> None:
        """Preempt the job's hosts, with the usual grace period. The job is then restarted.

        Raises JobNotFound, or PlatformError if the job does not run.
        """


@runtime_checkable
class Upkeep(Protocol):
    """The ability to maintain a job while a client waits for it, such as giving up on one that cannot start.

    In no other way does a client change a job without a request: methods that read jobs change nothing.
    """

    def upkeep(self, job_name: str) -> AbstractContextManager[None]:
        """Maintains the job until its body ends. Raises JobNotFound."""


@runtime_checkable
class PendingOutputs(Protocol):
    """The ability to upload the outputs of a training run later, if the storage was unavailable when it completed."""

    def upload_outputs(self, job_name: str, progress: Progress | None = None) -> Mapping[str, str]:
        """Upload the missing outputs, which completes the job. Returns the URI of each kind of output.

        Raises JobNotFound; PlatformError if the job runs or its training is not complete; StorageError if the storage
        failed again.
        """


@runtime_checkable
class Notifications(Protocol):
    """The ability to store the notifications of a job with it. Other platforms do not record what was sent."""

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
        """Copy a file to ``uri``, unless that exists: the URI contains a hash of the content. Raises StorageError.

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
    """One state of a job, with the platform's name for it. ``time`` is its start, in seconds since the epoch."""

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
    """The ability to capture the stacks of all ranks of a running job."""

    def request_stacks(self, job_name: str, *, native: bool = False) -> None:
        """Request the stacks. Returns immediately; `last_stacks` has the result a few seconds later.

        Args:
            native: whether to include native frames, which stops each rank for up to a few seconds.

        Raises JobNotFound, or PlatformError if the job has no running ranks.
        """

    def last_stacks(self, job_name: str) -> StackDump | None:
        """The stacks that were captured last, even if the job has ended; None if there are none."""


@runtime_checkable
class Prices(Protocol):
    """The ability to report the cost of a job."""

    def cost(self, description: JobDescription) -> Cost | None:
        """The cost so far of the job that was just described; None if its price is not known. Raises PlatformError."""


def cost_so_far(platform: Platform, description: JobDescription) -> Cost | None:
    """The cost of a job over all attempts; None if it has not started, or its price cannot be determined."""
    if description.cost is None and isinstance(platform, Prices) and description.started_at is not None:
        with contextlib.suppress(PlatformError):
            return platform.cost(description)
    return description.cost


@dataclass(frozen=True)
class HostOffer:
    """Equal hosts on which a platform could run jobs."""

    place: str
    """A region, a partition, a node, or this machine. Prices are looked up for the region or partition."""
    kind: str = ""
    """The instance type, or the name of the node."""
    gpu: str = ""
    """The platform's name for its GPUs; empty if it has none."""
    gpus: int | None = None
    """GPUs of one host."""
    hosts: int | None = None
    """The number of hosts that exist, or that the account may use together."""
    free_gpus: int | None = None
    """GPUs of all these hosts that are free now, if the platform reports it."""
    cluster: str = ""


@runtime_checkable
class Places(Protocol):
    """The ability to run jobs concurrently on a fixed set of machines that no scheduler allocates."""

    def placed(
        self, fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None
    ) -> Mapping[str, Any]:
        """The fields of job ``number`` of ``jobs`` concurrent ones, on its own machines or its own share of one.

        Args:
            per_host: how many jobs share a host. None: jobs share no host; on this machine, the only host, all do.

        Raises:
            InvalidJob: there are too few machines or GPUs. The message names ``parallel`` or ``trials_per_host``.
        """


@runtime_checkable
class Offers(Protocol):
    """The ability to list the hosts on which jobs could run."""

    def offers(self) -> Sequence[HostOffer]:
        """The hosts with GPUs on all clusters in the config file. Raises PlatformError if access is denied."""


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
    """The ability to export a request to another service, which can then start the job any number of times."""

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
        """The request that started the job, or the fields of it that the platform has kept. Raises JobNotFound."""
