"""All checks of one job: those of its source, and those of its platform."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloudtrain.packaging.imports import BUNDLED, outside_imports, read_sources
from cloudtrain.platforms.base import Platform, Preflight, Request
from cloudtrain.platforms.checks import Check, ok
from cloudtrain.spec import Agent, TrainingJob


def job_checks(
    platform: Platform, job: TrainingJob, request: Request | None, archive: Path | None
) -> dict[str, Check]:
    """The checks of a prepared job, by name. Checks change nothing.

    Args:
        request: the result of ``platform.render``; None to check only the platform.
        archive: the packed source.

    Raises:
        InvalidSource: a module of the source does not compile.
        StorageError: the archive cannot be read.
    """
    imports: Sequence[str] = ()
    if archive and job.entry_point:
        imports = outside_imports(read_sources(archive), job.entry_point, _bundled(job), _launcher(job))
    checks: dict[str, Check] = {}
    if request:
        checks["request"] = lambda: ok(f"the description is valid for {platform.name}")
    if archive:
        checks["source"] = lambda: ok(f"{job.entry_point} and what it imports compile")
    if isinstance(platform, Preflight):
        checks.update(platform.preflight(job, request, imports))
    return checks


def _launcher(job: TrainingJob) -> Sequence[str]:
    """The packages that start the ranks."""
    enabled = job.distribution.enabled if job.distribution else {}
    agent = enabled.get("agent")
    preset = [agent.preset] if isinstance(agent, Agent) and agent.preset else []
    needed = {"torch_distributed": "torch", "parameter_server": "tensorflow"}
    return [*preset, *(package for name, package in needed.items() if name in enabled)]


def _bundled(job: TrainingJob) -> Sequence[str]:
    horovod = job.distribution.horovod if job.distribution else None
    needs_real = horovod is not None and horovod.implementation == "horovod"
    return [name for name in BUNDLED if not (needs_real and name == "horovod")]
