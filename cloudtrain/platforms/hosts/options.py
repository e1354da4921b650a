"""``platform_options`` of the hosts platform."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.hosts.host_list import NamedHost, parse_hostfile, parse_hosts
from cloudtrain.runtime.start.allocation import find_allocation
from cloudtrain.spec import TrainingJob, convert

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
