"""Reads the contract: the configuration of this host."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import (
    Host,
    Launcher,
    Paths,
    Settings,
    decode_arguments,
    expand,
    host_hyperparameters,
    read_document,
    to_arguments,
    user_hyperparameters,
)
from cloudtrain.contract.channels import ChannelInput
from cloudtrain.contract.documents import Fields, is_program_text
from cloudtrain.contract.hyperparameters import ENCODING, check_hyperparameters
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.run_folder import LIBRARY
from cloudtrain.storage.uri import is_valid_key

SECRET_CHANNEL = "cloudtrain-secret"
"""The channel in which SageMaker delivers the job secret."""
RUNTIME_CHANNEL = "cloudtrain"
"""The channel in which the platform delivers the bundled runtime, if `Settings.source_channel` is set."""


@dataclass(frozen=True)
class HostConfig:
    """The content of the contract's files and variables, read once."""

    paths: Paths
    settings: Settings
    host: Host
    hyperparameters: Mapping[str, Any]
    arguments: tuple[str, ...]
    """The script's arguments after its hyperparameters, with placeholders."""
    channels: Mapping[str, Mapping[str, Any]]
    launcher: Launcher
    distribution_hosts: tuple[str, ...]
    """The hosts whose ranks form one world: all hosts, or those of the distribution's instance groups."""

    @classmethod
    def read(cls, paths: Paths, environ: Mapping[str, str]) -> HostConfig:
        """Read the configuration. Raises InvalidJob if a file or a variable is invalid."""
        try:
            settings = Settings.from_environ(environ)
            with _file("hyperparameters.json"):
                document = read_document(paths.input_config / "hyperparameters.json", {})
                check_hyperparameters(document)
                hyperparameters = host_hyperparameters(document, paths)
                arguments = decode_arguments(document)
            with _file("resourceconfig.json"):
                resources = read_document(paths.input_config / "resourceconfig.json", None)
                host = Host.from_document(resources) if resources else Host.alone()
            with _file("inputdataconfig.json"):
                channels = _channels(paths, settings)
            with _file("hyperparameters.json"):
                distribution_hosts = _distribution_hosts(host, hyperparameters, settings)
                takes_part = host.current in distribution_hosts
                launcher = Launcher.from_hyperparameters(hyperparameters) if takes_part else Launcher()
            return cls(
                paths=paths,
                settings=settings,
                host=host,
                hyperparameters=hyperparameters,
                arguments=arguments,
                channels=channels,
                launcher=launcher,
                distribution_hosts=distribution_hosts,
            )
        except ValueError as error:
            raise InvalidJob(
                f"the job's configuration cannot be read: {error}",
                hint=f"Check the files in {paths.input_config}, and the variables CLOUDTRAIN_*.",
            ) from None

    def with_hosts(self, hosts: Sequence[str]) -> HostConfig:
        """The configuration of a job on ``hosts``, in rank order. It has no instance groups."""
        names = tuple(hosts)
        return replace(self, host=replace(self.host, hosts=names), distribution_hosts=names)

    @property
    def inputs(self) -> list[ChannelInput]:
        """The channels that this host fetches."""
        return [ChannelInput(name, uri, self.channels.get(name, {})) for name, uri in self.settings.channels]

    @property
    def has_ranks(self) -> bool:
        """Whether this host runs ranks, and does not only lead the others."""
        return not _only_leads(self.host.current, self.host, self.settings)

    @property
    def script_host(self) -> Host:
        """This host among those that the script sees, which are all hosts with ranks."""
        return self.host_in_world if self.settings.no_ranks else self.host

    @property
    def host_in_world(self) -> Host:
        """This host among the hosts of its world. A host outside the distribution forms its own world."""
        hosts = self.distribution_hosts
        return replace(self.host, hosts=hosts if self.host.current in hosts else (self.host.current,))

    @property
    def job_name(self) -> str:
        """The name in the request, or else the one that SageMaker sets, because a pipeline names each of its runs."""
        named = self.settings.job_name or self.hyperparameters.get("sagemaker_job_name")
        return str(named or os.environ.get("TRAINING_JOB_NAME", "job"))

    @property
    def run_id(self) -> str:
        """The identity of the job for trackers."""
        return self.settings.run_id or self.job_name

    @property
    def entry_point(self) -> str:
        """The script or module to run. Raises InvalidJob if the job names none."""
        entry_point = self.hyperparameters.get("sagemaker_program")
        if not entry_point:
            raise InvalidJob(
                "the job names no entry point: the hyperparameter sagemaker_program is missing",
                hint="Submit the job with cloudtrain or the SageMaker SDK, with an entry_point.",
            )
        return str(entry_point)

    @property
    def script_arguments(self) -> list[str]:
        """The script's command line: its hyperparameters, then its arguments with the folders of this host."""
        as_json = self.hyperparameters.get(ENCODING) == "json"
        options = to_arguments(user_hyperparameters(self.hyperparameters), as_json=as_json)
        return [*options, *expand(self.arguments, self.paths)]

    @property
    def python(self) -> str:
        """The interpreter that runs the script, before its requirements are installed."""
        return self.settings.python or sys.executable

    def check_python(self) -> None:
        """Raises InvalidJob if `python` was removed after the job was submitted."""
        if self.settings.python and not shutil.which(self.settings.python):
            raise InvalidJob(
                f"platform_options.python: there is no program {self.settings.python!r}",
                hint="It was removed after the job was submitted: restore it, or submit the job with another one.",
            )

    @property
    def library(self) -> str:
        """The folder that the script's interpreter imports cloudtrain from."""
        return self.settings.bundled_runtime or LIBRARY

    @property
    def source_uri(self) -> str | None:
        """The URI of the source archive. If a channel delivers the archive, the SDK sets a path instead."""
        uri = str(self.hyperparameters.get("sagemaker_submit_directory") or "")
        return Path(uri).as_uri() if uri.startswith("/") else uri or None

    @property
    def is_package(self) -> bool:
        """Whether the entry point is a module of a package in the code folder instead of a file."""
        code = self.paths.code
        return not (code / self.entry_point).is_file() and any(
            (code / name).is_file() for name in ("pyproject.toml", "setup.py")
        )


@contextmanager
def _file(name: str) -> Iterator[None]:
    """Add the name of the file to the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        place = "" if name in str(error) else f"{name}: "
        raise ValueError(f"{place}{error}") from None


def _channels(paths: Paths, settings: Settings) -> dict[str, Any]:
    """The user's channels, without those of the runtime, the source and the job secret."""
    document = Fields({"channels": read_document(paths.input_config / "inputdataconfig.json", {})})
    channels = dict(document.mapping("channels"))
    for name, entry in channels.items():
        if "/" in name or not is_valid_key(name) or not is_program_text(name):
            raise ValueError(f"{name[:100]!r} is not a name of a channel")
        Fields(entry, name).text("TrainingInputMode", None)
    if settings.source_channel:
        for name in (RUNTIME_CHANNEL, SECRET_CHANNEL, settings.source_channel):
            channels.pop(name, None)
    return channels


def _distribution_hosts(
    host: Host, hyperparameters: Mapping[str, Any], settings: Settings
) -> tuple[str, ...]:
    ranked = host.hosts[1:] if _only_leads(host.leader, host, settings) else host.hosts
    names = Fields(hyperparameters).texts("sagemaker_distribution_instance_groups", ())
    named = {
        member
        for group in host.groups
        if group.get("instance_group_name") in names
        for member in group.get("hosts") or ()
    }
    return tuple(member for member in ranked if member in named) or ranked


def _only_leads(member: str, host: Host, settings: Settings) -> bool:
    return settings.no_ranks and host.count > 1 and member == host.leader
