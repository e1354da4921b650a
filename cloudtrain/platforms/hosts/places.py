"""The hosts of jobs that run at the same time: each job has its own hosts, or a share of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.contract.text import counted
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.places import with_share
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.platforms.hosts.render import NAME, HostsOptions
from cloudtrain.spec import TrainingJob


def placed(fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None) -> Mapping[str, Any]:
    """See `cloudtrain.platforms.Places`."""
    names = ("platform_options", "instance_count", "instance_groups", "spare_hosts")
    given = {name: fields[name] for name in names if name in fields}
    job = TrainingJob.from_dict({**given, "platform": NAME})
    options = HostsOptions.of(job)
    shares = per_host or 1
    if jobs == shares == 1 and options.hostfile is None:
        return fields  # all hosts, even if the sweep is continued in another allocation
    hosts = options.named_hosts()
    if jobs > 1:
        _check_names(hosts)
    if shares == 1:
        own, share = _own(job, hosts, number, jobs), 0
    else:
        own, share = [_shared(job, hosts, number, jobs, shares)], number // len(hosts)
    kept = {name: value for name, value in job.platform_options.items() if name != "hostfile"}
    placed = {**fields, "platform_options": {**kept, "hosts": [str(host) for host in own]}}
    return with_share(placed, share, shares, options.master_port)


def _own(job: TrainingJob, hosts: list[NamedHost], number: int, jobs: int) -> list[NamedHost]:
    """The hosts of a job that shares none: as many as it needs, or an equal number for each job."""
    is_counted = bool(job.instance_groups) or job.host_count > 1
    wanted = job.host_count + job.spare_hosts
    size = wanted if is_counted else max(len(hosts) // jobs, wanted)
    if size * jobs > len(hosts):
        each = f" of {counted(size, 'host')}" if size > 1 else ""
        raise InvalidJob(
            f"parallel: {jobs} trials{each} at the same time need {counted(size * jobs, 'host')}, and "
            f"platform_options.hosts has {len(hosts)}",
            hint="Name more hosts, decrease parallel"
            + (", or let trials share a host: trials_per_host 2." if size == 1 else "."),
        )
    return hosts[number * size :][:size] if jobs > 1 else hosts


def _shared(job: TrainingJob, hosts: list[NamedHost], number: int, jobs: int, shares: int) -> NamedHost:
    """The host that a job shares with others, with the job's share of the slots."""
    if job.instance_groups or job.host_count > 1 or job.spare_hosts:
        raise InvalidJob(
            f"trials_per_host: {shares}, but each trial needs {job.host_count + job.spare_hosts} whole hosts",
            hint="Leave trials_per_host out, or give each trial one host.",
        )
    if jobs > shares * len(hosts):
        raise InvalidJob(
            f"parallel: {jobs} trials at the same time, and {counted(len(hosts), 'host')} with {shares} "
            f"trials_per_host take {shares * len(hosts)}",
            hint="Increase trials_per_host, name more hosts, or decrease parallel.",
        )
    host = hosts[number % len(hosts)]
    if host.slots is not None and host.slots < shares:
        raise InvalidJob(
            f"trials_per_host: {shares} trials do not fit into the {counted(host.slots, 'slot')} of {host.name}",
            hint="Decrease trials_per_host, or write more slots.",
        )
    return replace(host, slots=host.slots and host.slots // shares)


def _check_names(hosts: list[NamedHost]) -> None:
    here = [host.name for host in hosts if host.is_this_machine]
    if len(here) > 1:
        raise InvalidJob(
            f"parallel: {here[0]} and {here[1]} are both this machine, and trials would use the same GPUs",
            hint="Name it once, and say how many trials share it: trials_per_host.",
        )
