"""Warns about the fields of a job that have no effect on platforms other than SageMaker."""

from __future__ import annotations

from cloudtrain.platforms.common.profiles import types_of
from cloudtrain.spec import TrainingJob

OF_SAGEMAKER = (
    "keep_alive_period_in_seconds",
    "training_plan",
    "enable_sagemaker_metrics",
    "enable_infra_check",
    "enable_remote_debug",
    "enable_session_tag_chaining",
    "training_repository_access_mode",
    "training_repository_credentials_provider_arn",
    "debugger_hook_config",
    "rules",
    "profiler_config",
    "compiler_config",
    "tensorboard_output_config",
    "experiment_config",
    "mlflow_config",
    "model_package_config",
)
"""Services that only SageMaker has."""
_OF_CLOUDS = (
    "role",
    "use_spot_instances",
    "max_wait",
    "max_pending_time_in_seconds",
    "volume_size",
    "instance_placement_config",
    "tags",
    "subnets",
    "security_group_ids",
    "volume_kms_key",
    "output_kms_key",
    "encrypt_inter_container_traffic",
)
_CHOSEN_BY = {
    "local": "the job runs on this machine",
    "container": "the job runs on this machine",
    "hosts": "the job runs on the hosts of platform_options.hosts",
    **dict.fromkeys(("pbs", "torque", "cobalt", "lsf"), "platform_options choose the nodes"),
}
"""How the machines are chosen on the platforms that do not use the instance type."""


def ignored_fields(platform: str, job: TrainingJob) -> list[str]:
    """Warnings, of one sentence each, about the fields of ``job`` that a supervised ``platform`` ignores."""
    if platform not in (*_CHOSEN_BY, "slurm"):
        return []
    given, found = job.to_dict(), []
    kinds = types_of(job)
    if kinds and platform in _CHOSEN_BY:
        found.append(f"instance_type: {', '.join(kinds)} has no effect on {platform}: {_CHOSEN_BY[platform]}")
    of_images = "compiler_config"  # of AWS's images, which a container may run
    names = [
        name
        for name in (*_OF_CLOUDS, *OF_SAGEMAKER)
        if name in given and not (platform == "container" and name == of_images)
    ]
    if names:
        verb = "has" if len(names) == 1 else "have"
        found.append(f"{', '.join(names)} {verb} no effect on {platform}: only SageMaker uses such fields")
    if job.enable_network_isolation and platform != "container":
        found.append(f"enable_network_isolation has no effect on {platform}: the script reaches the network")
    if job.image_uri and platform == "local":
        found.append(
            "image_uri has no effect on local: the script runs with this machine's Python, not in a container"
        )
    return found
