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

import msgspec
from msgspec import Struct

from cloudtrain.config import config_path, read_section
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.spec import TrainingJob, convert

SECTION = "slurm"
INSTANCE_TYPES = "instance_types"

_ALTERNATIVES = (("gpus", "gpu_type", "gres"), ("mem", "mem_per_gpu", "mem_per_cpu"))
"""Options that say the same in different ways: one of a job replaces those of a profile."""
_TOGETHER = (("gpus", "gpu_type"),)
"""Alternatives that complete each other."""
_NO_TYPES = ("local", "local_gpu")
"""Instance types that say nothing about a cluster."""


class SlurmSection(Struct, frozen=True, forbid_unknown_fields=True):
    """The section ``slurm`` of the config file: options by the name of a profile, and by instance type."""

    profiles: dict[str, dict[str, Any]] = {}
    instance_types: dict[str, dict[str, Any]] = {}


def read_profiles() -> SlurmSection:
    """The section of the config file. Raises InvalidJob, which names the file and the key."""
    where = f"{config_path()}: {SECTION}"
    section = convert(read_section(SECTION), SlurmSection, where)
    for name, options in section.profiles.items():
        if not name:
            raise InvalidJob(f"{where}.profiles: a profile has an empty name", hint="Name the cluster.")
        place = f"{where}.profiles.{name}"
        own_types = options.get(INSTANCE_TYPES, {})
        _check({key: value for key, value in options.items() if key != INSTANCE_TYPES}, place)
        for kind, values in _tables(own_types, f"{place}.{INSTANCE_TYPES}").items():
            _check(values, f"{place}.{INSTANCE_TYPES}.{kind}")
    for kind, values in section.instance_types.items():
        _check(values, f"{where}.{INSTANCE_TYPES}.{kind}")
    return section


def with_profile(job: TrainingJob) -> TrainingJob:
    """``job`` with the options of its profile and its instance type below its own. Raises InvalidJob."""
    section = read_profiles()
    own = job.platform_options
    name = _chosen(section, own)
    profile = dict(section.profiles[name]) if name else {}
    types = {**section.instance_types, **profile.pop(INSTANCE_TYPES, {})}
    merged = _merged(profile, _of_types(job, types, {**profile, **own}), own)
    if name:
        merged["profile"] = name
    return msgspec.structs.replace(job, platform_options=merged)


def login_of(name: str) -> str:
    """The ssh alias of a profile; ``name`` itself if there is no such profile. Raises InvalidJob."""
    profile = read_profiles().profiles.get(name)
    if profile is None:
        return name
    login = profile.get("login")
    if not login:
        raise InvalidJob(
            f"the profile {name} has no login",
            hint="Its commands run on this machine. To reach it by ssh, set login in the config file.",
        )
    return str(login)


def _chosen(section: SlurmSection, own: Mapping[str, Any]) -> str:
    """The profile of a job; empty for none."""
    profiles = section.profiles
    name = own.get("profile")
    if name is not None:
        if name in profiles:
            return str(name)
        hint = nearest(str(name), profiles) if profiles else f"Describe it in {config_path()}."
        raise InvalidJob(f"platform_options.profile: there is no profile {name!r}", hint=hint)
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
    """The options of the job's instance type. Raises InvalidJob for one that says nothing on this cluster."""
    kinds = [kind for kind in dict.fromkeys(job.instance_types) if kind not in _NO_TYPES]
    if not kinds or (len(kinds) == 1 and kinds[0] in types):
        return dict(types[kinds[0]]) if kinds else {}
    if any(given.get(name) for name in ("gpus", "gres", "partition")):
        return {}  # the job says itself what it needs
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
    section = read_profiles()
    name = _chosen(section, job.platform_options)
    types = {**section.instance_types, **(section.profiles[name].get(INSTANCE_TYPES, {}) if name else {})}
    unknown = [kind for kind in dict.fromkeys(job.instance_types) if kind not in (*types, *_NO_TYPES)]
    return [
        f"instance_type: {kind} is not in the table of the cluster; the job gets what platform_options say"
        for kind in unknown
    ]


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all layers; later ones win."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for group in _ALTERNATIVES:
            for name in group:
                for other in group:
                    if layer.get(name) is not None and other not in layer and not _complete(name, other):
                        merged.pop(other, None)
        for name, value in layer.items():
            old = merged.get(name)
            merged[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _complete(name: str, other: str) -> bool:
    return any(name in group and other in group for group in _TOGETHER)


def _tables(value: Any, where: str) -> dict[str, dict[str, Any]]:
    return convert(value, dict[str, dict[str, Any]], where)


def _check(options: Mapping[str, Any], where: str) -> None:
    if "profile" in options:
        raise InvalidJob(f"{where}.profile: a profile cannot name another", hint="Remove the key.")
    for name in options:
        if name not in SlurmOptions.__struct_fields__:
            raise InvalidJob(
                f"{where}: there is no option {name!r}", hint=nearest(name, SlurmOptions.__struct_fields__)
            )
    convert(dict(options), SlurmOptions, where)
