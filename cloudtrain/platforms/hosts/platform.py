"""The hosts platform: jobs on a list of machines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.hosts import render as rendering
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.options import HostsOptions
from cloudtrain.platforms.local.platform import check_interpreter
from cloudtrain.platforms.supervised.machine import MachinePlatform
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


class HostsPlatform(MachinePlatform):
    """Runs jobs on a list of hosts. Their supervisor is a process of this machine."""

    name = rendering.NAME
    supervisor = "cloudtrain.platforms.hosts.supervisor"

    def resolve(self, job: TrainingJob) -> TrainingJob:
        return rendering.resolve(super().resolve(rendering.in_folder(job)))

    def render(self, job: TrainingJob) -> Request:
        return rendering.render(job)

    def submit(self, request: Request) -> None:
        """Also raises InvalidJob if ``platform_options.python`` cannot run the script on this machine, or PlatformError
        if another host cannot take part.
        """
        hosts = parse_hosts(request.body["hosts"])
        if any(host.is_this_machine for host in hosts):
            check_interpreter(request.body["python"])
        if not all(host.is_this_machine for host in hosts):
            from cloudtrain.platforms.hosts.probe import check_hosts

            check_hosts(request.body)
        super().submit(request)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.local.doctor import checks

        body: Mapping[str, Any] = {}
        if request is not None:
            body = request.body
        elif HostsOptions.of(job).names_hosts(os.environ):  # a check of the platform alone
            body = rendering.question_body(job)
        are_here = [host.is_this_machine for host in parse_hosts(body["hosts"])] if body else []
        found = dict(checks(job, request, imports)) if any(are_here) or not are_here else {}
        if all(are_here):
            return found
        from cloudtrain.platforms.hosts.probe import remote_checks

        return {**found, **remote_checks(body, imports)}
