"""The local platform: jobs are processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.local import render as rendering
from cloudtrain.platforms.supervised import SupervisedPlatform
from cloudtrain.spec import TrainingJob

if TYPE_CHECKING:
    from cloudtrain.platforms.checks import Check


class LocalPlatform(SupervisedPlatform):
    """Runs jobs as processes of this machine."""

    name = "local"
    supervisor = "cloudtrain.platforms.local.supervisor"

    def render(self, job: TrainingJob) -> Request:
        return rendering.render(job)

    def interpreter(self, request: Request) -> str:
        python: str = request.body["python"]
        return python

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        from cloudtrain.platforms.local.doctor import checks

        return checks(job, request, imports)
