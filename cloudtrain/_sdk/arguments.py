"""Arguments of the SageMaker SDK, version 2, that are not fields of a job: old names, positions, unsupported ones."""

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
"""The order of the positional arguments of the SDK's ``Estimator``; the rarely used last ones are left out."""

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
"""Names from version 1 that version 2 still accepts."""

UNSUPPORTED = {
    "env": "Write environment={...}.",
    "image_uri_region": "Write image_uri=image_uris.retrieve(framework, region, version).",
    "requirements_file": "Put a requirements.txt into source_dir: it is installed before the script starts.",
    "training_recipe": "Pass the recipe's script as entry_point, and its values as hyperparameters.",
    "recipe_overrides": "Pass the recipe's script as entry_point, and its values as hyperparameters.",
}
"""Arguments that cloudtrain does not support, and what to do instead."""

_WITHOUT_EFFECT = (
    "checkpoint_path",
    "enable_cloudwatch_metrics",
    "evaluation_steps",
    "script_mode",
    "training_steps",
)
"""Names from version 1 that version 2 ignores: each gives a warning."""


def rename_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` with current names. Raises InvalidJob if an argument is given with both names."""
    renamed = {}
    for name, value in arguments.items():
        current = _RENAMED.get(name, name)
        if current != name:
            if current in arguments:
                raise InvalidJob(f"{name} and {current} are the same argument", hint=f"Pass only {current}.")
            warnings.warn(f"{name} was renamed to {current} in version 2 of the SageMaker SDK", stacklevel=4)
        renamed[current] = value
    return renamed


def drop_empty(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` without unsupported ones that are empty, and without those that have no effect.

    Raises InvalidJob if an unsupported one is not empty.
    """
    if arguments.get("script_mode") is False:
        raise InvalidJob(
            "script_mode: version 2 of the SageMaker SDK has only script mode",
            hint="Let the script train when it is run: if __name__ == '__main__'. Leave script_mode out.",
        )
    if without := [name for name in _WITHOUT_EFFECT if arguments.get(name) is not None]:
        warnings.warn(
            f"{', '.join(without)}: without effect since version 2 of the SageMaker SDK; what the script needs is"
            " one of its hyperparameters",
            stacklevel=4,
        )
    for name, hint in UNSUPPORTED.items():
        if arguments.get(name):
            raise InvalidJob(f"{name}: not supported by cloudtrain", hint=hint)
    return {name: value for name, value in arguments.items() if name not in {*UNSUPPORTED, *_WITHOUT_EFFECT}}
