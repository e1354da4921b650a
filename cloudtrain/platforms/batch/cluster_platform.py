"""A platform whose jobs are on several clusters, each job found by its ticket."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from cloudtrain._dataclass import dataclass
from cloudtrain.config import read_config
from cloudtrain.contract.documents import Fields
from cloudtrain.contract.text import escape_line
from cloudtrain.errors import CloudtrainError, JobExists, JobNotFound, PlatformError
from cloudtrain.observe import Summary
from cloudtrain.observe.stacks import StackDump
from cloudtrain.platforms.base import JobDescription, JobState, Request, Series
from cloudtrain.platforms.batch.cluster_jobs import ClusterJobs
from cloudtrain.platforms.batch.shell import ConnectionLost
from cloudtrain.platforms.common.ticket_files import TicketFiles
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.names import clean
from cloudtrain.storage import Progress, uri_scheme

if TYPE_CHECKING:
    from cloudtrain.cost.so_far import Cost


@dataclass(frozen=True)
class Ticket:
    """How to reach a cluster."""

    login: str = ""
    """The alias of its login node; empty for this machine."""
    folder: str = ""
    """As the nodes see it; empty for the default of this machine."""
    profile: str = ""
    poll_seconds: float = 10.0
    """How old an answer of the scheduler may be."""


class Tickets(TicketFiles[Ticket]):
    """The tickets of all jobs of one platform."""

    def _parse(self, given: Fields) -> Ticket:
        return Ticket(
            given.text("login", ""),
            given.text("folder", ""),
            given.text("profile", ""),
            given.number("poll_seconds", 10.0, least=1),
        )

    def _place(self, ticket: Ticket) -> Hashable:
        return ticket.login, ticket.folder


Jobs = TypeVar("Jobs", bound=ClusterJobs[Any])


class ClusterPlatform(ABC, Generic[Jobs]):
    """Passes each call on to the `ClusterJobs` of one cluster and folder, which is itself a supervised platform."""

    name: ClassVar[str]
    sends_notifications = True
    """See `SupervisedPlatform.sends_notifications`."""

    def __init__(self) -> None:
        self._tickets = Tickets(self.name)
        self._clusters: dict[Ticket, Jobs] = {}

    @abstractmethod
    def _open(self, ticket: Ticket) -> Jobs:
        """The jobs of a cluster. Raises InvalidJob, PlatformError."""

    def submit(self, request: Request) -> None:
        with unless_queued() as undo:
            self._jobs(self._file_ticket(request, undo)).submit(request)

    def describe(self, job_name: str) -> JobDescription:
        jobs = self._of(job_name)
        with jobs.remembering(job_name):
            return jobs.describe(job_name)

    def logs(self, job_name: str, *, follow: bool = False) -> Iterator[str]:
        return self._of(job_name).logs(job_name, follow=follow)

    def events(self, job_name: str, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        return self._of(job_name).events(job_name, follow=follow)

    def states(self, job_name: str) -> list[JobState]:
        jobs = self._of(job_name)
        with jobs.remembering(job_name):
            return jobs.states(job_name)

    def metrics(self, job_name: str) -> Series:
        return self._of(job_name).metrics(job_name)

    def summary(self, job_name: str) -> Summary:
        return self._of(job_name).summary(job_name)

    def cost(self, description: JobDescription) -> Cost | None:
        return self._of(description.name).cost(description)

    def request_stacks(self, job_name: str, *, native: bool = False) -> None:
        self._of(job_name).request_stacks(job_name, native=native)

    def last_stacks(self, job_name: str) -> StackDump | None:
        return self._of(job_name).last_stacks(job_name)

    def stop(self, job_name: str) -> None:
        self._of(job_name).stop(job_name)

    def was_interrupted(self, job_name: str) -> bool:
        jobs = self._of(job_name)
        with jobs.remembering(job_name):
            return jobs.was_interrupted(job_name)

    def withdraw(self, job_name: str) -> bool:
        return self._of(job_name).withdraw(job_name)

    def outbox(self, job_name: str) -> Path:
        """See `Notifications.outbox`."""
        return self._of(job_name).outbox(job_name)

    def upload_outputs(self, job_name: str, progress: Progress | None = None) -> Mapping[str, str]:
        return self._of(job_name).upload_outputs(job_name, progress)

    def download(
        self, job_name: str, uri: str, folder: Path, progress: Progress | None = None
    ) -> Path | None:
        """See `Downloads.download`."""
        cluster = self._of(job_name).cluster
        if not cluster.login or uri_scheme(uri) != "file":
            return None
        from cloudtrain.platforms.batch.remote_download import download_remote  # slow to import

        return download_remote(cluster.shell, uri, folder, progress)

    def request(self, job_name: str) -> Request:
        return self._of(job_name).request(job_name)

    def list(self) -> Iterator[JobDescription]:
        """See `Platform.list`. Includes the jobs that other machines submitted to this client's clusters.

        A cluster that does not answer is left out, with a warning.
        """
        described: dict[str, JobDescription] = {}
        silent = set()
        for ticket in self._places():
            if ticket.login in silent:  # not queried a second time for another folder
                continue
            try:
                jobs = self._jobs(ticket)
                with jobs.remembering(None):
                    described |= {job.place: job for job in jobs.list()}
            except (CloudtrainError, OSError) as error:
                if isinstance(error, PlatformError) and error.is_transient:
                    silent.add(ticket.login)
                reason = error.message if isinstance(error, CloudtrainError) else error
                where = ticket.login or "this machine"
                warnings.warn(
                    f"the jobs on {where} are left out of the list: {escape_line(str(reason))}", stacklevel=2
                )
        yield from sorted(described.values(), key=lambda job: job.submitted_at, reverse=True)

    def _of(self, job_name: str) -> Jobs:
        """The jobs of the cluster that has this job. Without a ticket of the job, all clusters are searched."""
        if clean(job_name) != job_name:  # it may be a path
            raise JobNotFound(
                f"there is no {self.name} job {job_name}",
                hint=f"See the jobs with: cloudtrain list --platform {self.name}",
            )
        return self._jobs(self._tickets.read(job_name) or self._place_of(job_name))

    def _place_of(self, job_name: str) -> Ticket:
        """The cluster of a job that this client did not submit. Raises PlatformError if a cluster does not answer."""
        errors = []
        for place in self._places():
            try:
                if self._jobs(place).has(job_name):
                    return place
            except (CloudtrainError, OSError) as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return Ticket()

    def _places(self) -> Iterator[Ticket]:
        """This machine, the clusters of the user's config file, and those to which this client submitted jobs.

        Raises InvalidJob while iterating, if the file is not valid.
        """
        seen = set()
        for ticket in chain([Ticket()], self._configured(), self._tickets.all()):
            if (ticket.login, ticket.folder) not in seen:
                seen.add((ticket.login, ticket.folder))
                yield ticket

    def _configured(self) -> Iterator[Ticket]:
        """The clusters of the user's config file. Raises InvalidJob."""
        config = read_config()
        if config.get("platform") == self.name and isinstance(config.get("platform_options"), Mapping):
            yield ticket_of(config["platform_options"])

    def _resolve_on(
        self, jobs: Jobs, job: TrainingJob, ticket_of: Callable[[TrainingJob], Ticket]
    ) -> TrainingJob:
        """Resolve ``job`` on its cluster, and name the folder there."""
        job = jobs.resolve(job)
        job = msgspec.structs.replace(
            job, platform_options={**job.platform_options, "folder": jobs.cluster.folder}
        )
        self._clusters.setdefault(ticket_of(job), jobs)  # so that the same cluster is queried only once
        return job

    def _jobs(self, ticket: Ticket) -> Jobs:
        if ticket not in self._clusters:
            self._clusters[ticket] = self._open(ticket)
        return self._clusters[ticket]

    def _file_ticket(self, request: Request, undo: ExitStack) -> Ticket:
        """Record the job's cluster before the job is submitted, so that a running job can always be found."""
        ticket = ticket_of(request.body["cluster"])
        name, known = request.job_name, self._tickets.read(request.job_name)
        self._tickets.write(name, ticket)

        def put_back(_kind: object, error: BaseException | None, _trace: object) -> None:
            # keep the ticket only if it leads to another client's job: an array may be refused for one element's name
            if known or not isinstance(error, JobExists) or not self._is_taken(name, ticket):
                self._tickets.restore(name, known)

        undo.push(put_back)
        return ticket

    def _is_taken(self, job_name: str, ticket: Ticket) -> bool:
        """Whether a job of this name exists; also true if the cluster does not answer."""
        try:
            return self._jobs(ticket).has(job_name)
        except (CloudtrainError, OSError):
            return True


def ticket_of(options: Mapping[str, Any]) -> Ticket:
    return Ticket(
        options.get("login") or "",
        options.get("folder") or "",
        options.get("profile") or "",
        options.get("poll_seconds", 10.0),
    )


@contextmanager
def unless_queued() -> Iterator[ExitStack]:
    """Runs the callbacks pushed onto the stack if the block fails, unless the job may be in the queue."""
    with ExitStack() as undo:
        try:
            yield undo
        except (ConnectionLost, KeyboardInterrupt):
            undo.pop_all()
            raise
        undo.pop_all()
