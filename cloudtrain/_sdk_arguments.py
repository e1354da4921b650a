"""The arguments of the SageMaker SDK, version 2, that are not our fields: other names, other places, other worlds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from cloudtrain.errors import InvalidJob

POSITIONS = (
    "image_uri",
    "role",
    "instance_count",
    "instance_type",
    "keep_alive_period_in_seconds",
    "volume_size",
    "volume_kms_key",
    "max_run",
    "input_mode",
    "output_path",
    "output_kms_key",
    "base_job_name",
    "sagemaker_session",
    "hyperparameters",
    "tags",
    "subnets",
    "security_group_ids",
    "model_uri",
    "model_channel_name",
    "metric_definitions",
    "encrypt_inter_container_traffic",
    "use_spot_instances",
    "max_wait",
    "checkpoint_s3_uri",
    "checkpoint_local_path",
    "enable_network_isolation",
)
"""The order of the positional arguments of that SDK's ``Estimator``, as far as anybody counts."""

_RENAMED = {
    "train_instance_count": "instance_count",
    "train_instance_type": "instance_type",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
    "train_use_spot_instances": "use_spot_instances",
    "train_volume_kms_key": "volume_kms_key",
    "train_volume_size": "volume_size",
    "distributions": "distribution",
    "image_name": "image_uri",
}
"""Names of version 1, which version 2 still takes."""

_UNSUPPORTED = {
    "git_config": "Clone the repository, and give its folder: source_dir='...'.",
    "compiler_config": "AWS makes no new releases of the SageMaker Training Compiler; use torch.compile in the script.",
    "training_recipe": "Give the recipe's own script as entry_point, and its values as hyperparameters.",
    "recipe_overrides": "Give the recipe's own script as entry_point, and its values as hyperparameters.",
    "rules": "Debugger's rules are jobs of their own; have the script check what it trains, and fail.",
}
"""Arguments that cloudtrain refuses, and what to do instead."""


def rename_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` with the names of today. Raises InvalidJob where both names are given."""
    renamed = {}
    for name, value in arguments.items():
        today = _RENAMED.get(name, name)
        if today != name:
            if today in arguments:
                raise InvalidJob(f"{name} and {today} are the same argument", hint=f"Give {today} only.")
            warnings.warn(f"{name} is {today} since version 2 of the SageMaker SDK", stacklevel=4)
        renamed[today] = value
    return renamed


def drop_empty(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` without those that cloudtrain has no use for and that ask for nothing.

    Raises InvalidJob where they ask for something.
    """
    for name, hint in _UNSUPPORTED.items():
        if arguments.get(name):
            raise InvalidJob(f"{name}: cloudtrain does not support it", hint=hint)
    return {name: value for name, value in arguments.items() if name not in _UNSUPPORTED}
