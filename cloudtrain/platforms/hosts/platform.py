"""The hosts platform: jobs on a list of machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import CheckStatus
from cloudtrain.platforms.hosts import render as rendering
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.options import HostsOptions
from cloudtrain.platforms.supervised import SupervisedPlatform
from cloudtrain.platforms.supervised.machine import SupervisorProcess
from cloudtrain.platforms.supervised.root import LocalRoot
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


class HostsPlatform(SupervisedPlatform):
    """Runs jobs on a list of hosts. Their supervisor is a process of this machine."""

    name = rendering.NAME

    def __init__(self) -> None:
        root = LocalRoot(self.name)
        self._supervisor = SupervisorProcess(root, "cloudtrain.platforms.hosts.supervisor")
        super().__init__(root, self._supervisor)

    def warm_up(self) -> None:
        self._supervisor.warm_up()

    def resolve(self, job: TrainingJob) -> TrainingJob:
        return rendering.resolve(super().resolve(rendering.in_folder(job)))

    def render(self, job: TrainingJob) -> Request:
        return rendering.render(job)

    def submit(self, request: Request) -> None:
        """Also raises InvalidJob if ``platform_options.python`` cannot run the script on this machine, or PlatformError
        if another host cannot take part.
        """
        python: str = request.body["python"]
        hosts = parse_hosts(request.body["hosts"])
        if python != sys.executable and any(host.is_this_machine for host in hosts):
            from cloudtrain.platforms.local.doctor import check_python

            finding = check_python(python)
            if finding.status == CheckStatus.FAILED:
                raise InvalidJob(f"platform_options.python: {finding.what}", hint=finding.hint)
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
        hosts = parse_hosts(body["hosts"]) if body else []
        found = (
            dict(checks(job, request, imports))
            if any(host.is_this_machine for host in hosts) or not hosts
            else {}
        )
        if all(host.is_this_machine for host in hosts):
            return found
        from cloudtrain.platforms.hosts.probe import remote_checks

        return {**found, **remote_checks(body, imports)}
