"""The clusters of the user's config file, merged below the options of a job.

slurm:
  profiles:
    kraken: {login: kraken, folder: $SCRATCH/cloudtrain, partition: gpu, account: physics}
    theta: {login: theta, folder: /projects/me/cloudtrain}
  instance_types:
    ml.p4d.24xlarge: {partition: gpu, gpus: 8, gpu_type: a100}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.config import config_path
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.platforms.common.profiles import (
    NO_TYPES,
    ProfileFile,
    Section,
    named_profile,
    types_of,
)
from cloudtrain.platforms.slurm.directives import SlurmOptions
from cloudtrain.spec import TrainingJob

FILE = ProfileFile(
    "slurm",
    SlurmOptions,
    alternatives=(("gpus", "gpu_type", "gres"), ("mem", "mem_per_gpu", "mem_per_cpu")),
    together=(("gpus", "gpu_type"),),
)


def with_profile(job: TrainingJob) -> TrainingJob:
    """``job`` with the options of its profile and its instance type; its own take precedence. Raises InvalidJob."""
    section = FILE.read()
    return FILE.applied(job, section, _chosen(section, job.platform_options), _of_types)


def login_of(name: str) -> str:
    """The ssh alias of a profile; ``name`` itself if there is no such profile. Raises InvalidJob."""
    profile = FILE.read().profiles.get(name)
    if profile is None:
        return name
    login = profile.get("login")
    if not login:
        raise InvalidJob(
            f"the profile {name} has no login",
            hint="Its commands run on this machine. To reach it by ssh, set login in the config file.",
        )
    return str(login)


def _chosen(section: Section, own: Mapping[str, Any]) -> str:
    """The profile of a job; empty for none."""
    profiles = section.profiles
    name = own.get("profile")
    if name is not None:
        return named_profile(section, name)
    if own.get("login"):
        fitting = [key for key, options in profiles.items() if options.get("login") == own["login"]]
        return fitting[0] if len(fitting) == 1 else ""
    if len(profiles) > 1:
        raise InvalidJob(
            "platform_options.profile: there are several profiles",
            hint=f"Choose one: --set platform_options.profile={next(iter(profiles))}. Known: {', '.join(profiles)}.",
        )
    return next(iter(profiles), "")


def _of_types(job: TrainingJob, types: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the job's instance type. Raises InvalidJob for one that is unknown on this cluster."""
    kinds = types_of(job)
    if not kinds or (len(kinds) == 1 and kinds[0] in types):
        return dict(types[kinds[0]]) if kinds else {}
    if any(given.get(name) for name in ("gpus", "gres", "partition")):
        return {}  # the job itself names what it needs
    if len(kinds) > 1:
        raise InvalidJob(
            f"instance_type: a job on slurm has hosts of one type, not {' and '.join(kinds)}",
            hint="Choose one, or set platform_options.partition and gpus.",
        )
    hint = (
        f"{nearest(kinds[0], types)} "
        if types
        else f"Add it to {config_path()}: slurm: {{instance_types: {{{kinds[0]}: {{partition: gpu, gpus: 8}}}}}}. "
    )
    raise InvalidJob(
        f"instance_type: the cluster has no {kinds[0]}",
        hint=f"{hint}Or set platform_options.partition or gpus, and it only names the hosts.",
    )


def instance_type_notes(job: TrainingJob) -> list[str]:
    """A note if nothing on the cluster depends on the job's instance type. ``job`` has its own options."""
    section = FILE.read()
    types = section.types(_chosen(section, job.platform_options))
    unknown = [kind for kind in dict.fromkeys(job.instance_types) if kind not in (*types, *NO_TYPES)]
    return [
        f"instance_type: {kind} is not in the table of the cluster; the job gets what platform_options say"
        for kind in unknown
    ]
