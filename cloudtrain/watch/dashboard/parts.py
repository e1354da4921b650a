"""Parts of a job's page: its hosts and ranks, and parts shown on request, with the content of the commands' output."""

from __future__ import annotations

from cloudtrain._display.view import JobView, moment
from cloudtrain.errors import NotFound, PlatformError
from cloudtrain.job import Job
from cloudtrain.platforms import AccountStorage, Platform, Request, Requests
from cloudtrain.platforms.request_diff import changes
from cloudtrain.storage import open_store
from cloudtrain.watch.report.content import stack_blocks
from cloudtrain.watch.report.document import Paragraph, Section, Table
from cloudtrain.watch.report.facts import text_of
from cloudtrain.watch.report.gather import shown_request
from cloudtrain.watch.top.hosts import Group, grouped, hosts_of

SEPARATE = 16
"""Up to this many hosts have a row each. With more, equal hosts share a row, and those that differ come first."""
MOST_ROWS = 500
STACK_SECONDS = 30.0


def ranks(view: JobView) -> Section:
    """The hosts of the last attempt: their ranks, their state, and how they differ."""
    hosts = hosts_of(view)
    groups = [Group([host]) for host in hosts] if len(hosts) <= SEPARATE else grouped(hosts)
    rows = [(group.name, group.ranks, group.state, group.step, group.facts) for group in groups]
    table = Table(("host", "ranks", "state", "step", ""), rows[:MOST_ROWS])
    return Section("Hosts and ranks", [table] if any(row[1] or row[2] for row in rows) else [])


def stacks(job: Job) -> Section:
    """Take the stacks of all ranks now. Raises PlatformError, TimeoutError."""
    return Section("Stacks", list(stack_blocks(job.stacks(timeout=STACK_SECONDS))))


def checkpoints(job: Job) -> Section:
    """The checkpoints of the job, and which one a restart would restore.

    Raises:
        NotFound: the job does not keep checkpoints.
        StorageError, PlatformError: they cannot be listed.
    """
    from cloudtrain.checkpoint.inspect import list_checkpoints

    uri = job.describe().checkpoint_uri
    if uri is None:
        raise NotFound(f"job {job.name} does not keep checkpoints", hint="Set its checkpoint_s3_uri.")
    found = list_checkpoints(
        job.platform.open_store(uri) if isinstance(job.platform, AccountStorage) else open_store(uri)
    )
    newest = max((one.step for one in found if not one.problem), default=None)
    rows = [
        (
            f"{one.step:,}",
            moment(one.manifest.time) if one.manifest else "",
            f"{one.size / 1e6:,.1f} MB" if one.manifest else "",
            one.problem or ("restored next" if one.step == newest else ""),
        )
        for one in reversed(found)
    ]
    table = Table(("step", "saved", "size", ""), rows[:MOST_ROWS])
    return Section("Checkpoints", [table if rows else Paragraph(f"There are none in {uri}.")])


def difference(job: Job, other: Job) -> Section:
    """The fields of the request that differ from those of another job's request. Raises PlatformError."""
    found = changes(_request(other.platform, other.name), _request(job.platform, job.name))
    rows = [(one.path, *(_text(value) for value in (one.new, one.old))) for one in found]
    table = Table(("field", job.name, other.name), rows[:MOST_ROWS])
    return Section(
        f"Difference from {other.name}", [table if rows else Paragraph("Their requests are the same.")]
    )


def _request(platform: Platform, name: str) -> Request:
    if not isinstance(platform, Requests):
        raise PlatformError(f"the platform {platform.name} does not keep the requests of its jobs")
    request = platform.request(name)
    return Request(request.platform, name, shown_request(request))


def _text(value: object) -> str:
    return "" if value is None else text_of(value)
