"""The variables of each rank of a host that state its place and its job, in the names of all frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudtrain.contract import RankSlot, gpu_count
from cloudtrain.contract.frameworks import (
    LOOPBACK,
    PARAMETER_SERVER,
    TF_CONFIG,
    WorldPorts,
    address,
    framework_variables,
    tf_config,
    without_set,
)
from cloudtrain.contract.rank import CLOUDTRAIN, HOROVODRUN
from cloudtrain.contract.trackers import tracker_variables
from cloudtrain.runtime.host_config import HostConfig


def rank_environments(
    config: HostConfig, slots: Sequence[RankSlot], master: tuple[str, int]
) -> list[dict[str, str]]:
    """For each rank, the variables that its launcher sets: those of torchrun, or our own without a launcher."""
    if config.launcher.has_one_rank:
        return [RankSlot(0, 0, 1, 1, 0, 1).variables(CLOUDTRAIN) for _ in slots]
    if config.launcher.is_none:
        return [slot.environment_without_launcher(*master) for slot in slots]
    environments = [slot.environment(*master) for slot in slots]
    if config.launcher.is_horovod:
        for slot, environment in zip(slots, environments):
            environment.update(slot.variables(HOROVODRUN))
    return environments


def framework_environments(
    config: HostConfig,
    slots: Sequence[RankSlot],
    master_addr: str,
    ports: WorldPorts,
    environ: Mapping[str, str],
    *,
    one_machine: bool,
) -> list[dict[str, str]]:
    """For each rank, the variables of other frameworks that the user has not set; none if the ranks have no world."""
    has_world = not config.launcher.is_none or slots[0].host_count > 1
    if config.launcher.has_one_rank or not has_world:
        return [{} for _ in slots]
    gpus = gpu_count(environ)
    environments = [framework_variables(slot, master_addr, ports, gpus) for slot in slots]
    cluster = _cluster(config, ports, one_machine=one_machine)
    if cluster:
        environments[0][TF_CONFIG] = tf_config(config.launcher.name, slots[0].host_rank, *cluster)
    return [
        without_set({name: value for name, value in environment.items() if value}, environ)
        for environment in environments
    ]


def tracker_environments(
    config: HostConfig, slots: Sequence[RankSlot], environ: Mapping[str, str]
) -> list[dict[str, str]]:
    """For each rank, the variables of trackers that the user has not set."""
    environments = []
    for slot in slots:
        part = f"rank{slot.rank}" if slot.rank else ""
        if config.host.current not in config.distribution_hosts:
            part = config.host.current  # its only rank is rank 0 of another world
        variables = tracker_variables(config.job_name, config.run_id, part, config.settings.attempt)
        environments.append(without_set(variables, environ))
    return environments


def server_config(config: HostConfig, ports: WorldPorts, *, one_machine: bool) -> str:
    """``TF_CONFIG`` of this host's parameter server; empty if it has none."""
    cluster = _cluster(config, ports, one_machine=one_machine)
    if not config.launcher.has_servers or cluster is None:
        return ""
    workers, servers = cluster
    if len(workers) == 1:
        return ""
    return tf_config(PARAMETER_SERVER, config.host_in_world.rank, workers, servers, is_server=True)


def _cluster(
    config: HostConfig, ports: WorldPorts, *, one_machine: bool
) -> tuple[list[str], list[str]] | None:
    """The addresses of the workers and of the parameter servers of all hosts, for TensorFlow."""
    if not config.launcher.has_tasks:
        return None
    names = [LOOPBACK if one_machine else name for name in config.host_in_world.hosts]
    workers = [address(name, worker) for name, (worker, _) in zip(names, ports.tasks)]
    return workers, [address(name, server) for name, (_, server) in zip(names, ports.tasks)]
