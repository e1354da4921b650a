"""The environment variables that a script receives.

Names and formats are those of Amazon's sagemaker-training toolkit 5.1.4 (``environment.to_env_vars``) and of the newer
drivers (SDK 3.27).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract.cpus import cpu_count
from cloudtrain.contract.hidden import without_secrets
from cloudtrain.contract.host import Host, gpu_count
from cloudtrain.contract.hyperparameters import PLATFORM_PREFIX, user_hyperparameters
from cloudtrain.contract.neuron import neuron_core_count
from cloudtrain.contract.paths import Paths

DEFAULT_LOG_LEVEL = 20
NOTHING_HIDDEN = ValueHider(())


def script_environment(
    paths: Paths,
    host: Host,
    hyperparameters: Mapping[str, Any],
    channels: Mapping[str, Mapping[str, Any]],
    *,
    arguments: Sequence[str],
    job_name: str,
    entry_point: str,
    master: tuple[str, int],
    hider: ValueHider = NOTHING_HIDDEN,
) -> dict[str, str]:
    """Every ``SM_*`` variable, ``CURRENT_HOST`` and ``SAGEMAKER_*``.

    Args:
        hyperparameters: decoded, including the platform's ``sagemaker_*``.
        channels: the content of ``inputdataconfig.json``.
        arguments: the script's command line.
        entry_point: as the user gave it, relative to the code folder.
        master: address and port of rank 0.
        hider: of values that are not in ``SM_TRAINING_ENV``. Nor are likely secrets.
    """
    user = user_hyperparameters(hyperparameters)
    platform = {key: value for key, value in hyperparameters.items() if key.startswith(PLATFORM_PREFIX)}
    module_name = entry_point[:-3] if entry_point.endswith(".py") else entry_point
    own_group = next((group for group in host.groups if group.get("instance_group_name") == host.group), {})
    values: dict[str, Any] = {
        "hosts": list(host.hosts),
        "current_host": host.current,
        "network_interface_name": host.network_interface,
        "hps": user,
        "user_args": list(arguments),
        "user_entry_point": entry_point,
        "module_name": module_name,
        "module_dir": platform.get("sagemaker_submit_directory", str(paths.code)),
        "framework_module": "cloudtrain.runtime:main",
        "framework_params": platform,
        "channels": sorted(channels),
        "model_dir": str(paths.model),
        "input_dir": str(paths.input),
        "input_config_dir": str(paths.input_config),
        "input_data_config": channels,
        "resource_config": host.to_document(),
        "output_dir": str(paths.output),
        "output_data_dir": str(paths.output_data),
        "output_intermediate_dir": str(paths.output_intermediate),
        "num_cpus": cpu_count(),
        "num_gpus": gpu_count(),
        "num_neurons": neuron_core_count(host.instance_type),
        "current_instance_type": host.instance_type or "local",
        "current_instance_group": host.group or "homogeneousCluster",
        "current_instance_group_hosts": own_group.get("hosts", list(host.hosts)),
        "instance_groups": [group.get("instance_group_name") for group in host.groups],
        "instance_groups_dict": {group.get("instance_group_name"): group for group in host.groups},
        "distribution_instance_groups": platform.get("sagemaker_distribution_instance_groups", []),
        "is_hetero": len(host.groups) > 1,
        "log_level": platform.get("sagemaker_container_log_level", DEFAULT_LOG_LEVEL),
        "master_addr": master[0],
        "master_port": master[1],
        "host_count": host.count,
        "current_host_rank": host.rank,
        "input_data_dir": str(paths.input_data),
        "output_failure": str(paths.failure),
        "source_dir": str(paths.code),
        "entry_script": entry_point,
    }
    training = {
        **values,
        "hyperparameters": user,
        "job_name": job_name,
        "is_master": host.leads,
        "master_hostname": host.leader,
        "channel_input_dirs": {name: str(paths.channel(name)) for name in channels},
    }
    values["training_env"] = without_secrets(training, hider)
    environment = {f"SM_{name.upper()}": _format(value) for name, value in values.items()}
    environment.update({f"SM_HP_{name.upper()}": _format(value) for name, value in user.items()})
    environment.update({f"SM_CHANNEL_{name.upper()}": str(paths.channel(name)) for name in channels})
    environment["CURRENT_HOST"] = host.current
    environment["SAGEMAKER_JOB_NAME"] = job_name
    environment["SAGEMAKER_REGION"] = str(platform.get("sagemaker_region", ""))
    return environment


def _format(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
