"""Which platforms have spare hosts."""

from __future__ import annotations

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob

HAVE_SPARES = ("hosts", "slurm")
_ONE_MACHINE = "all hosts are processes of this machine, which cannot replace itself"
_WHY_NOT = {
    "sagemaker": "SageMaker ends a job that loses an instance, and restarts it on new ones",
    "local": _ONE_MACHINE,
    "container": _ONE_MACHINE,
}


def check_spare_hosts(job: TrainingJob, platform: str) -> None:
    """Raises InvalidJob if the job wants spare hosts, and the platform has none."""
    if not job.spare_hosts or platform in HAVE_SPARES:
        return
    why = _WHY_NOT.get(platform, f"the platform {platform} has none")
    raise InvalidJob(
        f"spare_hosts: {why}", hint=f"Leave it out. Spare hosts work on: {', '.join(HAVE_SPARES)}."
    )
