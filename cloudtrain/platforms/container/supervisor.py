"""The supervisor of a job in containers."""

from __future__ import annotations

import contextlib

from cloudtrain.platforms.container.hosts import ContainerHosts
from cloudtrain.platforms.supervised.main import run_supervisor

if __name__ == "__main__":
    with contextlib.suppress(ImportError):  # the job reports it, with a hint
        import docker  # noqa: F401  # slow, so import it while the client prepares the job
    run_supervisor(ContainerHosts)
