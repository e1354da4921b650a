"""The options of a job on a list of hosts, and the request that the supervisor of its hosts runs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.common.request import base_body, check_channels, new_request
from cloudtrain.platforms.hosts.host_list import NamedHost, parse_hostfile, parse_hosts
from cloudtrain.runtime.start.allocation import find_allocation
from cloudtrain.spec import Distribution, Processes, TrainingJob, convert
from cloudtrain.storage import join_uri

NAME = "hosts"
REMOTE_PYTHON = "python3"
"""The interpreter of a host that is not this machine, unless the job names one."""


def in_folder(job: TrainingJob) -> TrainingJob:
    """``job`` with outputs and checkpoints in the folder that its hosts share, if it has one."""
    options = HostsOptions.of(job)
    if options.folder is None:
        return job
    assert job.job_name, "a job is named before it is resolved"
    uri = Path(options.folder).expanduser().as_uri()
    return msgspec.structs.replace(
        job,
        output_path=job.output_path or uri,
        checkpoint_s3_uri=job.checkpoint_s3_uri or join_uri(uri, job.job_name, "checkpoints"),
    )


def resolve(job: TrainingJob) -> TrainingJob:
    """``job`` with the names of its hosts, their number, and the ranks that their slots allow.

    Raises InvalidJob if there are no hosts, or fewer than the job needs, or if their slots do not fit.
    """
    options = HostsOptions.of(job)
    hosts = options.named_hosts()
    spares = job.spare_hosts
    is_counted = bool(job.instance_groups) or job.host_count > 1
    wanted = job.host_count + spares if is_counted else max(len(hosts), spares + 1)
    if wanted > len(hosts):
        counted = f"{wanted - spares} hosts and {spares} spare_hosts" if spares else f"{wanted} hosts"
        raise InvalidJob(
            f"instance_count: the job needs {counted}, but there are {len(hosts)}: {_names(hosts)}",
            hint="Name more hosts in platform_options.hosts, or lower instance_count.",
        )
    hosts = hosts[:wanted]
    if not job.instance_groups:
        job = msgspec.structs.replace(job, instance_count=wanted - spares)
    if options.python and os.path.dirname(options.python):
        given = {**job.platform_options, "python": os.path.expanduser(options.python)}
        job = msgspec.structs.replace(job, platform_options=given)
    return with_hosts(_with_ranks(job, hosts), hosts)


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which is resolved, and has a name and a packed source.

    Raises:
        InvalidJob: the hosts platform cannot run the job.
    """
    options = HostsOptions.of(job)
    _check(job, options)
    body: dict[str, Any] = {
        **base_body(job, master_port=options.master_port, max_preemptions=options.max_preemptions),
        **_hosts(options),
        "hyperparameters": encoded_hyperparameters(job),
    }
    return new_request(NAME, job, body)


def question_body(job: TrainingJob) -> dict[str, Any]:
    """The part of a request that names the hosts, for a check without a job. Raises InvalidJob."""
    return {"settings": {}, "channels": {}, **_hosts(HostsOptions.of(job))}


def _hosts(options: HostsOptions) -> dict[str, Any]:
    body: dict[str, Any] = {
        "hosts": [str(replace(host, slots=None)) for host in options.named_hosts({})],
        "python": options.python or sys.executable,
        "remote_python": options.python or REMOTE_PYTHON,
    }
    if options.ssh != "ssh":
        body["ssh"] = options.ssh_command()
    if options.folder:
        body["folder"] = os.path.expanduser(options.folder)
    return body


def _check(job: TrainingJob, options: HostsOptions) -> None:
    if job.entry_point is None:
        raise InvalidJob("entry_point: the hosts platform needs a script", hint="Name the script to run.")
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(f"{field}: the hosts platform has no containers", hint="Leave it out.")
    check_channels(job, NAME)


def _with_ranks(job: TrainingJob, hosts: list[NamedHost]) -> TrainingJob:
    """``job`` with as many ranks on every host as it has slots, unless the job sets their number.

    Without a distribution, several slots mean ``processes``.
    """
    kinds = job.distribution.enabled if job.distribution else {}
    name = next((name for name, kind in kinds.items() if hasattr(kind, "processes_per_host")), "")
    asked = getattr(kinds.get(name), "processes_per_host", None)
    slots = {host.name: host.slots for host in hosts}
    counts = {count for count in slots.values() if count is not None}
    if asked is not None:
        for host, count in slots.items():
            if count is not None and count < asked:
                raise InvalidJob(
                    f"processes_per_host: {asked} ranks do not fit into the {count} slots of {host}",
                    hint=f"Write {host}:{asked}, or lower processes_per_host.",
                )
        return job
    if len(counts) > 1 or (counts and None in slots.values()):
        known = {host: 1 if count is None else count for host, count in slots.items()}
        first = next(iter(known))
        other = next((host for host in known if known[host] != known[first]), None)
        if other:
            least = min(known.values())
            raise InvalidJob(
                f"platform_options.hosts: {first} has {_slots(known[first])} and {other} has "
                f"{_slots(known[other])}, but every host runs the same number of ranks",
                hint=f"Give them the same number, such as {first}:{least},{other}:{least}.",
            )
    if not counts:
        return job
    count = counts.pop()
    if not kinds:
        if count == 1 and len(hosts) == 1:
            return job
        groups = job.distribution.instance_groups if job.distribution else []
        return msgspec.structs.replace(
            job,
            distribution=Distribution(processes=Processes(processes_per_host=count), instance_groups=groups),
        )
    if not name:
        return job
    kind = msgspec.structs.replace(kinds[name], processes_per_host=count)
    assert job.distribution
    return msgspec.structs.replace(
        job, distribution=msgspec.structs.replace(job.distribution, **{name: kind})
    )


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _names(hosts: list[NamedHost]) -> str:
    shown = [host.name for host in hosts[:5]]
    return ", ".join(shown) + (", …" if len(hosts) > 5 else "")


NO_HOSTS = (
    "Set platform_options.hosts, such as localhost:4 or server1:4,server2:4; or platform_options.hostfile."
)


class HostsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job on a list of hosts.

    Attributes:
        hosts: names with their slots, the leader first: ``server1:4,server2:4``, or a list of them. Default: those of
            ``hostfile``, or of the allocation of a scheduler in which this process runs.
        hostfile: a file of such names, in the syntax of Open MPI, Horovod or MPICH.
        folder: a folder that this machine and all hosts share, for data that is too large for ssh. Every start checks
            that they see it. Without one, files reach the hosts through ssh.
        python: the interpreter on every host: Python 3.9 or newer, which need not have cloudtrain. Default: on this
            machine, the interpreter that submits the job; on other hosts, ``python3``.
        ssh: the command that connects to a host, with its options: ``ssh -p 2222 -i ~/.ssh/cluster``.
        master_port: the port on which rank 0 listens; 0 for a free one.
        max_preemptions: how often a preempted job is restarted, which does not count as a retry.
    """

    hosts: str | list[str] | None = None
    hostfile: str | None = None
    folder: str | None = None
    python: str | None = None
    ssh: str = "ssh"
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10

    @classmethod
    def of(cls, job: TrainingJob) -> HostsOptions:
        """Raises InvalidJob."""
        check_own_options("hosts", job.platform_options)
        options = convert(job.platform_options, cls, "platform_options")
        if options.hosts is not None and options.hostfile is not None:
            raise InvalidJob(
                "platform_options: hosts and hostfile both name the hosts", hint="Leave one of them out."
            )
        if options.folder is not None and not os.path.isabs(os.path.expanduser(options.folder)):
            raise InvalidJob(
                f"platform_options.folder: {options.folder!r} is not an absolute path",
                hint="Write the path that all hosts have in common.",
            )
        options.ssh_command()
        return options

    def names_hosts(self, environ: Mapping[str, str]) -> bool:
        """Whether the options name hosts, or ``environ`` describes an allocation. Raises InvalidJob."""
        return bool(self.hosts or self.hostfile or find_allocation(environ))

    def named_hosts(self, environ: Mapping[str, str] = os.environ) -> list[NamedHost]:
        """The hosts that the options name; else those of the allocation that ``environ`` describes.

        Raises InvalidJob if there are none.
        """
        if self.hosts is not None:
            return parse_hosts(self.hosts)
        if self.hostfile is not None:
            path = Path(self.hostfile).expanduser()
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise InvalidJob(
                    f"platform_options.hostfile: {path} cannot be read: {error.strerror}",
                    hint="Give the path of a file with a line for each host: server1 slots=4.",
                ) from None
            return parse_hostfile(text, str(path))
        allocation = find_allocation(environ)
        if allocation is None:
            raise InvalidJob("platform_options.hosts: the job names no hosts", hint=NO_HOSTS)
        return [NamedHost(name, slots) for name, slots in allocation.hosts]

    def ssh_command(self) -> list[str]:
        """``ssh`` as a command line. Raises InvalidJob."""
        try:
            command = shlex.split(self.ssh)
        except ValueError:
            command = []
        if not command:
            raise InvalidJob(
                f"platform_options.ssh: {self.ssh!r} is not a command line", hint="Example: ssh -p 2222"
            )
        return [os.path.expanduser(word) for word in command]


def with_hosts(job: TrainingJob, hosts: list[NamedHost]) -> TrainingJob:
    """``job`` with its hosts instead of a hostfile or an allocation."""
    options = {name: value for name, value in job.platform_options.items() if name != "hostfile"}
    return msgspec.structs.replace(job, platform_options={**options, "hosts": [str(host) for host in hosts]})
