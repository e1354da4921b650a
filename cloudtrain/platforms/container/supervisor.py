"""The supervisor of a job in containers."""

from __future__ import annotations

from cloudtrain.platforms.container.hosts import ContainerHosts
from cloudtrain.platforms.supervised.main import run_supervisor

if __name__ == "__main__":
    run_supervisor(ContainerHosts)
