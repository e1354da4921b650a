"""The ``platform_options`` of each built-in platform, and the error for an option of another platform."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from msgspec import Struct

from cloudtrain.errors import InvalidJob

_STRUCTS = {
    "container": "container.render:ContainerOptions",
    "local": "local.render:LocalOptions",
    "sagemaker": "sagemaker.queue.request:QueueOptions",
    "hosts": "hosts.render:HostsOptions",
    "slurm": "slurm.directives:SlurmOptions",
    **dict.fromkeys(("pbs", "torque", "cobalt"), "pbs.directives:PbsOptions"),
    "lsf": "lsf.platform:LsfOptions",
    "kubernetes": "kubernetes.options:KubernetesOptions",
}
"""The module and struct of each platform's options, in the order in which errors name the platforms."""

GPUS = {
    "local": "Its ranks see all GPUs of the machine. Set --processes-per-host to the number of GPUs to use.",
    "hosts": "Each host starts as many ranks as it has slots: platform_options.hosts=server1:4.",
    "sagemaker": "The instance type decides: --instance-type ml.g5.12xlarge has 4.",
}
"""How many GPUs a job uses on the platforms without the option ``gpus``."""


@cache
def options_of(platform: str) -> type[Struct] | None:
    """The struct whose fields are the options of a platform; None for a platform of a third party."""
    if platform not in _STRUCTS:
        return None
    module, _, name = _STRUCTS[platform].partition(":")
    found: type[Struct] = getattr(import_module(f"cloudtrain.platforms.{module}"), name)
    return found


def option_names(platform: str) -> tuple[str, ...]:
    """The names of the options of a built-in platform."""
    struct = options_of(platform)
    return struct.__struct_fields__ if struct else ()


def check_own_options(platform: str, names: Iterable[str]) -> None:
    """Raises InvalidJob for the first of ``names`` that only another platform has."""
    own = option_names(platform)
    for name in names:
        if name in own:
            continue
        owners = [owner for owner in _STRUCTS if name in option_names(owner)]
        if owners:
            hint = f"Choose it with --platform {owners[0]} (platform={owners[0]!r}), or remove the option."
            raise InvalidJob(
                f"platform_options.{name}: needs the platform {' or '.join(owners)}, but the job runs on {platform}",
                hint=GPUS.get(platform, hint) if name == "gpus" else hint,
            )
