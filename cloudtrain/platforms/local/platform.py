"""The local platform: jobs are processes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.supervised import SupervisedPlatform
from cloudtrain.platforms.supervised.early import LOCAL_SUPERVISOR
from cloudtrain.platforms.supervised.machine import SupervisorProcess
from cloudtrain.platforms.supervised.root import LocalRoot

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check
    from cloudtrain.spec import TrainingJob


class LocalPlatform(SupervisedPlatform):
    """Runs jobs as processes on this machine."""

    name = "local"

    def __init__(self) -> None:
        root = LocalRoot(self.name)
        self._supervisor = SupervisorProcess(root, LOCAL_SUPERVISOR)
        super().__init__(root, self._supervisor)

    def warm_up(self) -> None:
        self._supervisor.warm_up()

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.local import render as rendering

        return rendering.resolve(super().resolve(job))

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.local import render as rendering

        return rendering.render(job)

    def submit(self, request: Request) -> None:
        """Also raises InvalidJob if ``platform_options.python`` cannot run the script."""
        python: str = request.body["python"]
        if python != sys.executable:
            from cloudtrain.platforms.checks import CheckStatus
            from cloudtrain.platforms.local.doctor import check_python

            finding = check_python(python)
            if finding.status == CheckStatus.FAILED:
                raise InvalidJob(f"platform_options.python: {finding.what}", hint=finding.hint)
        super().submit(request)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.local.doctor import checks

        return checks(job, request, imports)
