"""Refuses spare hosts on a platform that has none."""

from __future__ import annotations

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Platform
from cloudtrain.spec import TrainingJob


def check_spare_hosts(job: TrainingJob, platform: Platform) -> None:
    """Raises InvalidJob if the job wants spare hosts, and the platform has none.

    A platform that has them says so by its attribute ``why_no_spare_hosts``, which is empty.
    """
    why = _why_none(platform, platform.name)
    if not job.spare_hosts or not why:
        return
    from cloudtrain.platforms.registry import built_in_types

    able = [name for name, kind in built_in_types() if not _why_none(kind, name)]
    raise InvalidJob(f"spare_hosts: {why}", hint=f"Leave it out. Spare hosts work on: {', '.join(able)}.")


def _why_none(platform: Platform | type[Platform], name: str) -> str:
    """Why the platform has no spare hosts; empty if it has."""
    why: str = getattr(platform, "why_no_spare_hosts", f"the platform {name} has none")
    return why
