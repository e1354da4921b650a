"""Rejects a job's options for lost hosts on a platform that does not support them."""

from __future__ import annotations

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Platform
from cloudtrain.spec import TrainingJob

_REASONS = {"spare_hosts": "why_no_spare_hosts", "min_instance_count": "why_no_fewer_hosts"}
"""By field: the attribute of a platform with the reason why it does not support the field; empty if it does."""


def check_lost_hosts(job: TrainingJob, platform: Platform) -> None:
    """Raises InvalidJob if the job requests spare hosts, or to continue with fewer, and the platform cannot do that."""
    for field in _REASONS:
        why = _why_not(field, platform, platform.name)
        if not getattr(job, field) or not why:
            continue
        from cloudtrain.platforms.registry import built_in_types

        able = [name for name, kind in built_in_types() if not _why_not(field, kind, name)]
        raise InvalidJob(f"{field}: {why}", hint=f"Leave it out. It works on: {', '.join(able)}.")


def _why_not(field: str, platform: Platform | type[Platform], name: str) -> str:
    """The reason why the platform does not support a field; empty if it does."""
    why: str = getattr(platform, _REASONS[field], f"the platform {name} does not support it")
    return why
