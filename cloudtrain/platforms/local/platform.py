"""The local platform: jobs are processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudtrain.contract.host import visible_gpus
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.supervised.early import LOCAL_SUPERVISOR
from cloudtrain.platforms.supervised.machine import MachinePlatform

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check
    from cloudtrain.spec import TrainingJob


class LocalPlatform(MachinePlatform):
    """Runs jobs as processes on this machine."""

    name = "local"
    why_no_fewer_hosts = ""
    supervisor = LOCAL_SUPERVISOR

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.local import render as rendering

        return rendering.resolve(super().resolve(job))

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.local import render as rendering

        return rendering.render(job)

    def placed(
        self, fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None
    ) -> Mapping[str, Any]:
        from cloudtrain.platforms.common.places import shares_of_machine, with_share

        gpus = visible_gpus({**os.environ, **(fields.get("environment") or {})})
        port = (fields.get("platform_options") or {}).get("master_port", 0)
        return with_share(fields, number, shares_of_machine(gpus, jobs, per_host), port)

    def job_warnings(self, job: TrainingJob) -> list[str]:
        from cloudtrain.platforms.local.absent_frameworks import framework_warnings

        return framework_warnings(job)

    def submit(self, request: Request) -> None:
        """Also raises InvalidJob if ``platform_options.python`` cannot run the script."""
        check_interpreter(request.body["python"])
        super().submit(request)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.local.doctor import checks

        return checks(job, request, imports)


def check_interpreter(python: str) -> None:
    """Raises InvalidJob if this interpreter of this machine cannot run a script."""
    if python == sys.executable:
        return
    from cloudtrain.platforms.checks import CheckStatus
    from cloudtrain.platforms.local.doctor import check_python

    finding = check_python(python)
    if finding.status == CheckStatus.FAILED:
        raise InvalidJob(f"platform_options.python: {finding.what}", hint=finding.hint)
