"""The supervisor of a job on a list of hosts."""

from __future__ import annotations

from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.local.supervisor import HostProcesses
from cloudtrain.platforms.supervised.main import run_supervisor
from cloudtrain.runtime.supervisor.folder import JobFolder


def hosts_of(folder: JobFolder, lock: int) -> HostProcesses:
    """The hosts of the job in ``folder``. Code for hosts other than this machine is imported only if there are any."""
    hosts = parse_hosts(folder.read_request()["hosts"])
    if all(host.is_this_machine for host in hosts):
        return HostProcesses(folder, lock, [host.name for host in hosts])
    from cloudtrain.platforms.hosts.remote_hosts import ListedHosts

    return ListedHosts(folder, lock)


if __name__ == "__main__":
    run_supervisor(hosts_of)
