"""The hosts platform: jobs on a list of machines."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.config import read_config
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import HostOffer, Request
from cloudtrain.platforms.checks import Check
from cloudtrain.platforms.hosts import render as rendering
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.render import HostsOptions
from cloudtrain.platforms.local.platform import check_interpreter
from cloudtrain.platforms.supervised.machine import MachinePlatform
from cloudtrain.spec import TrainingJob


class HostsPlatform(MachinePlatform):
    """Runs jobs on a list of hosts. Their supervisor is a process on this machine."""

    name = rendering.NAME
    why_no_spare_hosts = why_no_fewer_hosts = ""
    supervisor = "cloudtrain.platforms.hosts.supervisor"

    def resolve(self, job: TrainingJob) -> TrainingJob:
        return rendering.resolve(super().resolve(rendering.in_folder(job)))

    def placed(
        self, fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None
    ) -> Mapping[str, Any]:
        from cloudtrain.platforms.hosts.places import placed

        return placed(fields, number, jobs, per_host)

    def offers(self) -> list[HostOffer]:
        """See `Offers`: the hosts in the config file or the allocation, with the GPUs that they report.

        Warns about each host that does not answer. Raises InvalidJob if none is named, PlatformError if none answers.
        """
        from cloudtrain.platforms.hosts.probe import find_gpus

        options = read_config().get("platform_options") or {}
        job = TrainingJob.from_dict({"platform": self.name, "platform_options": options})
        found, problems = find_gpus(rendering.question_body(job))
        if problems and not found:
            raise PlatformError("; ".join(one.what for one in problems), hint=problems[0].hint)
        for one in problems:
            warnings.warn(one.what, stacklevel=2)
        equal: dict[tuple[str, int], list[str]] = {}
        for name, models in found.items():
            for model in dict.fromkeys(models):
                equal.setdefault((model, models.count(model)), []).append(name)
        return [
            HostOffer(", ".join(names), "", model, gpus, len(names)) for (model, gpus), names in equal.items()
        ]

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
