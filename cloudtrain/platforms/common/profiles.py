"""Clusters in the user's config file: options by the name of a profile, and by instance type.

SECTION:
  profiles:
    theta: {OPTION: VALUE, instance_types: {TYPE: {OPTION: VALUE}}}
  instance_types:
    ml.p4d.24xlarge: {OPTION: VALUE}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cloudtrain._dataclass import dataclass
from cloudtrain.config import config_path, read_section
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec import TrainingJob, convert

INSTANCE_TYPES = "instance_types"

NO_TYPES = ("local", "local_gpu")
"""Instance types that choose nothing on a cluster."""

Options = Mapping[str, Any]
OfType = Callable[[TrainingJob, Mapping[str, Any], Options], dict[str, Any]]
"""Maps a job, the table of instance types, and the options of the job and its profile to the options of its type."""


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of the config file: options by the name of a profile, and by instance type."""

    profiles: dict[str, dict[str, Any]] = {}
    instance_types: dict[str, dict[str, Any]] = {}

    def types(self, profile: str) -> dict[str, dict[str, Any]]:
        """The options by instance type; those of the profile take precedence."""
        own = self.profiles[profile].get(INSTANCE_TYPES, {}) if profile else {}
        return {**self.instance_types, **own}


@dataclass(frozen=True)
class ProfileFile:
    """The section of one platform in the config file."""

    name: str
    """The name of the section."""
    options: type[Struct]
    """The options of a job on the platform, each of which a profile may set."""
    alternatives: tuple[tuple[str, ...], ...] = ()
    """Options that set one thing in different ways: one that a job sets replaces the others in a profile."""
    together: tuple[tuple[str, ...], ...] = ()
    """Alternatives that may be combined."""

    def read(self) -> Section:
        """Raises InvalidJob, which names the file and the key."""
        where = f"{config_path()}: {self.name}"
        section = convert(read_section(self.name), Section, where)
        for name, options in section.profiles.items():
            if not name:
                raise InvalidJob(f"{where}.profiles: a profile has an empty name", hint="Name the cluster.")
            place = f"{where}.profiles.{name}"
            own_types = options.get(INSTANCE_TYPES, {})
            self._check({key: value for key, value in options.items() if key != INSTANCE_TYPES}, place)
            for kind, values in _tables(own_types, f"{place}.{INSTANCE_TYPES}").items():
                self._check(values, f"{place}.{INSTANCE_TYPES}.{kind}")
        for kind, values in section.instance_types.items():
            self._check(values, f"{where}.{INSTANCE_TYPES}.{kind}")
        return section

    def merged(self, *layers: Options) -> dict[str, Any]:
        """The options of all layers. Later layers override earlier ones; mappings are merged."""
        merged: dict[str, Any] = {}
        for layer in layers:
            for group in self.alternatives:
                for name in group:
                    for other in group:
                        if (
                            layer.get(name) is not None
                            and other not in layer
                            and not self._complete(name, other)
                        ):
                            merged.pop(other, None)
            for name, value in layer.items():
                old = merged.get(name)
                merged[name] = (
                    {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
                )
        return merged

    def applied(self, job: TrainingJob, section: Section, name: str, of_type: OfType) -> TrainingJob:
        """``job`` with the options of its profile and its instance type; its own options take precedence.

        Args:
            name: the name of the profile; empty for none.
            of_type: the options of the job's instance type.
        """
        own = job.platform_options
        given = section.profiles[name] if name else {}
        profile = {key: value for key, value in given.items() if key != INSTANCE_TYPES}
        merged = self.merged(profile, of_type(job, section.types(name), {**profile, **own}), own)
        if name:
            merged["profile"] = name
        return msgspec.structs.replace(job, platform_options=merged)

    def _complete(self, name: str, other: str) -> bool:
        return any(name in group and other in group for group in self.together)

    def _check(self, options: Options, where: str) -> None:
        if "profile" in options:
            raise InvalidJob(f"{where}.profile: a profile cannot name another", hint="Remove the key.")
        fields = self.options.__struct_fields__
        for name in options:
            if name not in fields:
                raise InvalidJob(f"{where}: there is no option {name!r}", hint=nearest(name, fields))
        convert(dict(options), self.options, where)


def named_profile(section: Section, name: object) -> str:
    """The profile that a job names. Raises InvalidJob if there is none of this name."""
    profiles = section.profiles
    if name in profiles:
        return str(name)
    hint = nearest(str(name), profiles) if profiles else f"Describe it in {config_path()}."
    raise InvalidJob(f"platform_options.profile: there is no profile {name!r}", hint=hint)


def types_of(job: TrainingJob) -> list[str]:
    """The instance types of a job that choose something on a cluster, each once."""
    return [kind for kind in dict.fromkeys(job.instance_types) if kind not in NO_TYPES]


def _tables(value: Any, where: str) -> dict[str, dict[str, Any]]:
    return convert(value, dict[str, dict[str, Any]], where)
