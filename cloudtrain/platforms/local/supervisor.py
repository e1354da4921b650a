"""The supervisor of a local job: its hosts are processes, forked from it."""

from __future__ import annotations

import os
import sys

from cloudtrain.contract import Settings
from cloudtrain.platforms.local.host_process import HostProcess
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.platforms.supervised.supervisor import reveal, supervise
from cloudtrain.storage import state_home


class HostProcesses:
    """The runtimes of a job as processes of this machine."""

    interface = "lo0" if sys.platform == "darwin" else "lo"
    end_seconds = 60.0
    """For their last uploads."""

    def __init__(self, folder: JobFolder, lock: int) -> None:
        self._folder = folder
        self._lock = lock
        self._request = folder.read_request()
        self._interpreter = _interpreter(self._request["python"])

    def start(self, attempt: int, log: int) -> dict[str, HostProcess]:
        return {name: self._start(name, attempt, log) for name in self._request["hosts"]}

    def finish(self, *, failed: bool) -> None:
        """The runtimes have done all that themselves."""

    def _start(self, name: str, attempt: int, log: int) -> HostProcess:
        base = self._folder.host(name).base
        return HostProcess.start(
            {
                **os.environ,
                **reveal(self._request["environment"]),
                **self._interpreter,
                "SAGEMAKER_BASE_DIR": str(base),
                "CLOUDTRAIN_ATTEMPT": str(attempt),
                "CLOUDTRAIN_DIE_WITH_PARENT": "1",
            },
            cwd=base,
            log=log,
            closed=self._lock,
        )


def _interpreter(python: str) -> dict[str, str]:
    """The runtime's settings for a script that runs in another interpreter, which need not have cloudtrain.

    Raises StorageError if the bundled runtime cannot be written.
    """
    if python == sys.executable:
        return {}
    from cloudtrain.packaging import pack_runtime
    from cloudtrain.runtime.zipapp_main import unpack

    cache = state_home() / "runtime"
    library = unpack(str(pack_runtime(cache).path), str(cache))
    return Settings(python=python, bundled_runtime=library).to_environ()


if __name__ == "__main__":
    supervise(HostProcesses)
