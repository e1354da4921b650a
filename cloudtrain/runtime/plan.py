"""Reads the contract: what this host has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudtrain.contract import Host, Launcher, Paths, Settings, decode_hyperparameters, read_document
from cloudtrain.errors import InvalidJob


@dataclass(frozen=True)
class HostPlan:
    """Everything that the contract's files and variables say, read once."""

    paths: Paths
    settings: Settings
    host: Host
    hyperparameters: Mapping[str, Any]
    channels: Mapping[str, Mapping[str, Any]]
    launcher: Launcher

    @classmethod
    def read(cls, paths: Paths, environ: Mapping[str, str]) -> HostPlan:
        """Raises InvalidJob when a file or a variable does not hold what it should."""
        try:
            hyperparameters = decode_hyperparameters(
                read_document(paths.input_config / "hyperparameters.json", {})
            )
            resources = read_document(paths.input_config / "resourceconfig.json", None)
            return cls(
                paths=paths,
                settings=Settings.from_environ(environ),
                host=Host.from_document(resources) if resources else Host.alone(),
                hyperparameters=hyperparameters,
                channels=read_document(paths.input_config / "inputdataconfig.json", {}),
                launcher=Launcher.from_hyperparameters(hyperparameters),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidJob(f"the job's configuration cannot be read: {error}") from None

    @property
    def job_name(self) -> str:
        return self.settings.job_name or str(self.hyperparameters.get("sagemaker_job_name", "job"))

    @property
    def entry_point(self) -> str:
        """Raises InvalidJob when the job names none."""
        entry_point = self.hyperparameters.get("sagemaker_program")
        if not entry_point:
            raise InvalidJob(
                "the job names no entry point: sagemaker_program is not among its hyperparameters"
            )
        return str(entry_point)

    @property
    def source_uri(self) -> str | None:
        uri = self.hyperparameters.get("sagemaker_submit_directory")
        return str(uri) if uri else None

    @property
    def is_package(self) -> bool:
        """Whether the entry point is a module of a package in the code folder, not a file."""
        code = self.paths.code
        return not (code / self.entry_point).is_file() and any(
            (code / name).is_file() for name in ("pyproject.toml", "setup.py")
        )
