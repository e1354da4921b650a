"""Refuses ``platform_options`` of another platform."""

from __future__ import annotations

from collections.abc import Iterable

from cloudtrain.errors import InvalidJob

SBATCH_FLAGS = (
    "account",
    "qos",
    "reservation",
    "constraint",
    "nodelist",
    "exclude",
    "exclusive",
    "comment",
    "wckey",
    "nice",
    "licenses",
    "switches",
    "segment",
    "begin",
    "deadline",
    "mail_user",
    "mail_type",
)
"""The options of slurm that are flags of sbatch with the same names."""
_ON_NODES = (
    "modules",
    "prologue",
    "epilogue",
    "python",
    "container",
    "container_mounts",
    "container_options",
    "container_home",
    "network_interface",
)
"""The options of every scheduler about what runs on the nodes."""
OPTIONS = {
    "container": (
        "engine",
        "gpus",
        "memory",
        "shm_size",
        "volumes",
        "pull",
        "mount_source",
        "capabilities",
        "new_privileges",
        "master_port",
        "max_preemptions",
    ),
    "local": ("python", "mount_opt_ml", "master_port", "max_preemptions"),
    "sagemaker": (
        "job_queue",
        "scheduling_priority",
        "share_identifier",
        "quota_share_name",
        "retry_strategy",
        "preemption_configuration",
        "timeout_config",
        "capacity_retries",
        "capacity_wait",
    ),
    "hosts": ("hosts", "hostfile", "folder", "python", "ssh", "master_port", "max_preemptions"),
    "slurm": (
        "profile",
        "login",
        "folder",
        "node_folder",
        "clusters",
        "partition",
        *SBATCH_FLAGS,
        "gpus",
        "gpu_type",
        "gpu_style",
        "gres",
        "cpus_per_task",
        "mem",
        "mem_per_gpu",
        "mem_per_cpu",
        "tmp",
        "sbatch",
        "srun",
        *_ON_NODES,
        "launcher_srun",
        "array_parallelism",
        "requeue",
        "time",
        "poll_seconds",
        "master_port",
        "max_preemptions",
    ),
    **dict.fromkeys(
        ("pbs", "torque", "cobalt"),
        (
            "folder",
            "node_folder",
            "queue",
            "account",
            "project",
            "cpus",
            "gpus",
            "gpu_type",
            "mem",
            "select",
            "place",
            "nodes",
            "attrs",
            "directives",
            "start",
            *_ON_NODES,
            "master_port",
            "max_preemptions",
        ),
    ),
}
"""The options of each built-in platform."""


def check_own_options(platform: str, names: Iterable[str]) -> None:
    """Raises InvalidJob for the first of ``names`` that only another platform has."""
    for name in names:
        owners = [owner for owner, options in OPTIONS.items() if name in options]
        if owners and platform not in owners:
            raise InvalidJob(
                f"platform_options.{name}: needs the platform {' or '.join(owners)}, but the job runs on {platform}",
                hint=f"Choose it with --platform {owners[0]} (platform={owners[0]!r}), or remove the option.",
            )
