"""The supervisor of a local job: its hosts are processes, forked from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cloudtrain._system.processes import FORKS_SAFELY
from cloudtrain._system.sockets import LOOPBACK
from cloudtrain.contract import FailureReport, Settings
from cloudtrain.contract.host import visible_gpus
from cloudtrain.contract.request_body import request_environment, request_settings
from cloudtrain.contract.trackers import without_outer_job
from cloudtrain.platforms.local.host_process import HostProcess, NoOptMl
from cloudtrain.platforms.local.namespace import no_opt_ml
from cloudtrain.platforms.supervised.main import run_supervisor
from cloudtrain.runtime.descendants import adopt_orphans, end_descendants
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import FolderHosts, RunningHost, numbered_names
from cloudtrain.storage import state_home


class HostProcesses(FolderHosts):
    """The hosts of a job as processes on this machine."""

    interface = LOOPBACK
    end_seconds = 60.0
    """The time for the last uploads."""

    def __init__(self, folder: JobFolder, lock: int, names: Sequence[str] = ()) -> None:
        """``names`` are ``algo-1``, ``algo-2``, ... unless they are given."""
        super().__init__(folder, names or numbered_names(folder.read_request()["host_count"]))
        self._lock = lock
        self._here: Sequence[str] = self.names
        """The hosts that are processes of this machine."""
        self._forks = FORKS_SAFELY
        adopt_orphans()
        self._interpreter = _interpreter(self._request["python"])
        self._no_opt_ml = no_opt_ml(self._request, folder.path)
        """Why hosts do not have their own ``/opt/ml``; empty if they do, or if it has not been tried."""

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        return {name: self._start(name, attempt, log) for name in self._here}

    def finish(self, *, failed: bool) -> FailureReport | None:
        """End the processes that the ranks of a killed runtime have left. The runtimes upload the outputs."""
        end_descendants()
        return None

    def _start(self, name: str, attempt: int, log: int) -> HostProcess:
        start = partial(
            HostProcess.start, cwd=self._folder.host(name).base, log=log, closed=self._lock, forks=self._forks
        )
        if not self._no_opt_ml:
            try:
                return start(self._environment(name, attempt), has_opt_ml=True)
            except NoOptMl as error:
                self._no_opt_ml = str(error)
        return start(self._environment(name, attempt), has_opt_ml=False)

    def settings(self, attempt: int) -> Settings:
        """The settings of the runtimes on this machine."""
        return replace(
            request_settings(self._request),
            rendezvous=str(self._folder.leader),
            master_addr="127.0.0.1",
            hosts_on_machine=len(self._here),
            requirements_cache=str(state_home() / "environments"),
            attempt=attempt,
            no_opt_ml=self._no_opt_ml,
            run_id=self._folder.run_id,
            **self._interpreter,
        )

    def _environment(self, name: str, attempt: int) -> dict[str, str]:
        base = self._folder.host(name).base
        environment = {**without_outer_job(os.environ), **request_environment(self._request)}
        return {
            **environment,
            **gpus_of_host(self._here.index(name), len(self._here), environment),
            **self.settings(attempt).to_environ(),
            "CLOUDTRAIN_ATTEMPT": str(attempt),  # even 0, which is the default
            "SAGEMAKER_BASE_DIR": str(base),
            "CLOUDTRAIN_DIE_WITH_PARENT": str(os.getpid()),
        }


def gpus_of_host(number: int, hosts: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that gives a host its share of this machine's GPUs.

    The shares are equal, so that all hosts have equally many ranks. If there are fewer GPUs than hosts, hosts share a
    GPU. A job of one host has all GPUs.
    """
    gpus = visible_gpus(environ)
    if hosts == 1 or not gpus:
        return {}
    share = len(gpus) // hosts
    own = gpus[number * share :][:share] or (gpus[number % len(gpus)],)
    return {"CUDA_VISIBLE_DEVICES": ",".join(own)}


def _interpreter(python: str) -> dict[str, Any]:
    """The runtime's settings for a script that runs in another interpreter, which need not have cloudtrain.

    Raises StorageError if the bundled runtime cannot be written.
    """
    if python == sys.executable:
        return {}
    from cloudtrain.packaging import pack_runtime
    from cloudtrain.runtime.zipapp_main import unpack

    cache = state_home() / "runtime"
    library = unpack(str(pack_runtime(cache).path), str(cache))
    return {"python": python, "bundled_runtime": library}


if __name__ == "__main__":
    run_supervisor(HostProcesses)
