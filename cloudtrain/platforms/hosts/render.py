"""Renders a job as the request that the supervisor of its hosts runs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.channels import check_channels
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.request import base_body, new_request
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.platforms.hosts.options import HostsOptions, with_hosts
from cloudtrain.spec import Distribution, Processes, TrainingJob
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
    wanted = job.host_count if job.instance_groups or job.host_count > 1 else len(hosts)
    if wanted > len(hosts):
        raise InvalidJob(
            f"instance_count: the job needs {wanted} hosts, but there are {len(hosts)}: {_names(hosts)}",
            hint="Name more hosts in platform_options.hosts, or lower instance_count.",
        )
    hosts = hosts[:wanted]
    if not job.instance_groups:
        job = msgspec.structs.replace(job, instance_count=wanted)
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
