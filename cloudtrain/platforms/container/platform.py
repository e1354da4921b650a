"""The container platform, which runs jobs in containers on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check
from cloudtrain.platforms.supervised.early import CONTAINER_SUPERVISOR
from cloudtrain.platforms.supervised.machine import MachinePlatform
from cloudtrain.spec import TrainingJob


class ContainerPlatform(MachinePlatform):
    """Runs jobs in Docker or Podman, one container for each instance, as SageMaker does."""

    name = "container"
    supervisor = CONTAINER_SUPERVISOR

    def resolve(self, job: TrainingJob) -> TrainingJob:
        from cloudtrain.platforms.container.render import resolve

        return resolve(super().resolve(job))

    def render(self, job: TrainingJob) -> Request:
        from cloudtrain.platforms.container.render import render

        return render(job)

    def placed(
        self, fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None
    ) -> Mapping[str, Any]:
        from cloudtrain.platforms.container.render import placed

        return placed(fields, number, jobs, per_host)

    def job_warnings(self, job: TrainingJob) -> list[str]:
        from cloudtrain.platforms.common.runtime_choice import runtime_warnings

        return runtime_warnings(job)

    def submit(self, request: Request) -> None:
        from cloudtrain.engine.engine import find_engine

        find_engine(request.body.get("engine"))
        super().submit(request)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.container.check import checks

        return checks(job, request, imports)
