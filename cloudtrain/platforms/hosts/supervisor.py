"""The supervisor of a job on a list of hosts."""

from __future__ import annotations

from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.local.supervisor import HostProcesses
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.platforms.supervised.main import run_supervisor


class ListedHosts(HostProcesses):
    """The hosts of one job."""

    def __init__(self, folder: JobFolder, lock: int) -> None:
        hosts = folder.read_request()["hosts"]
        super().__init__(folder, lock, [host.name for host in parse_hosts(hosts)])


if __name__ == "__main__":
    run_supervisor(ListedHosts)
