"""The configuration with which a supervisor uploads the outputs of a host."""

from __future__ import annotations

from collections.abc import Sequence

from cloudtrain.contract import Host, Launcher, Settings
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.supervisor.folder import JobFolder


def upload_config(folder: JobFolder, settings: Settings, host: str, hosts: Sequence[str]) -> HostConfig:
    """The configuration of one of ``hosts``. It is not from the host's folder: the job can change what is there."""
    return HostConfig(
        paths=folder.host(host),
        settings=settings,
        host=Host(host, tuple(hosts)),
        hyperparameters={},
        arguments=(),
        channels={},
        launcher=Launcher(),
        distribution_hosts=tuple(hosts),
    )
