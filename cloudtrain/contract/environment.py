"""The environment variables that a script receives.

Names and formats are those of Amazon's sagemaker-training toolkit 5.1.4 (``environment.to_env_vars``) and of the newer
drivers (SDK 3.27).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain._secrets.hiding import ValueHider
from cloudtrain._secrets.names import is_secret_name
from cloudtrain._secrets.urls import HIDDEN, has_credentials
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.host import Host, gpu_count
from cloudtrain.contract.hyperparameters import PLATFORM_PREFIX, user_hyperparameters
from cloudtrain.contract.paths import Paths
from cloudtrain.contract.processors import cpu_count, neuron_core_count

_FIELD = pattern(r"[+~]{0,2}[A-Za-z_][\w./@-]*")
"""The name of a setting, as in ``wandb.api_key=...`` of Hydra and OmegaConf."""
_NOTHING = ValueHider(())


def without_secrets(values: Mapping[str, Any], hider: ValueHider) -> dict[str, Any]:
    """``values`` with ``***`` for likely secrets, by name or by content, and for the values of ``hider``.

    Numbers stay: ``max_token`` is not a secret.
    """
    return {name: _hidden(name, value, hider) for name, value in values.items()}


def _hidden(name: str, value: Any, hider: ValueHider) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value, hider)
    if isinstance(value, str):
        return HIDDEN if is_secret_name(name) or _is_secret(value) else hider.hide_all(value)
    if isinstance(value, Sequence):
        return hider.hide_all(hidden_arguments([*value]))
    return value


def _is_secret(value: str) -> bool:
    return has_credentials(value) or has_secret_format(value)


def hidden_arguments(arguments: Sequence[Any]) -> list[Any]:
    """A list, such as a command line, with ``***`` for likely secrets and for values of options with secret names."""
    hidden: list[Any] = []
    option = ""
    for argument in arguments:
        if not isinstance(argument, str):
            hidden.append(_hidden("", argument, _NOTHING))
            continue
        name, separator, value = argument.partition("=")
        is_option = argument.startswith("-")
        if not argument or (is_option and not separator):
            hidden.append(argument)
        elif not is_option and (is_secret_name(option) or _is_secret(argument)):
            hidden.append(HIDDEN)
        elif separator and (is_option or _FIELD.fullmatch(name)):
            is_secret = is_secret_name(name.lstrip("-")) or _is_secret(value)
            hidden.append(f"{name}={HIDDEN}" if is_secret else argument)
        else:
            hidden.append(argument)
        option = argument.lstrip("-") if argument.startswith("-") and not separator else ""
    return hidden


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
        entry_point: its path as the user gave it, relative to the code folder.
        master: address and port of rank 0.
        hider: hides its values, like likely secrets, in ``SM_TRAINING_ENV``.
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
