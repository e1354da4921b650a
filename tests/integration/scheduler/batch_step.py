"""The batch step, which the scheduler starts on the first node of a job: a supervisor with the nodes as its hosts.

Usage: python batch_step.py FOLDER, with the names of the nodes in ``BATCH_NODES``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cloudtrain.contract import FailureReport
from cloudtrain.contract.request_body import request_environment, request_settings
from cloudtrain.platforms.supervised import FolderHosts, JobFolder, supervise


class Node:
    """One node, on which the runtime is a real process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def abandon(self) -> None:
        self._process.kill()

    def lost(self, name: str) -> FailureReport:
        return FailureReport.host_lost(
            name, f"its runtime exited with {self._process.returncode}", time.time()
        )


class Nodes(FolderHosts):
    """The nodes that the scheduler has given to the job."""

    interface = "lo"
    end_seconds = 60.0

    def __init__(self, folder: JobFolder) -> None:
        super().__init__(folder, os.environ["BATCH_NODES"].split(","))

    def start(self, attempt: int, log: int) -> Mapping[str, Node]:
        settings = replace(
            request_settings(self._request),
            rendezvous=str(self._folder.leader),
            master_addr="127.0.0.1",
            hosts_on_machine=len(self.names),
            attempt=attempt,
        )
        return {name: self._start(name, settings.to_environ(), log) for name in self.names}

    def finish(self, *, failed: bool) -> None:
        """The runtimes have saved everything."""

    def _start(self, name: str, settings: Mapping[str, str], log: int) -> Node:
        base = self._folder.host(name).base
        environ = {
            **os.environ,
            **request_environment(self._request),
            **settings,
            "SAGEMAKER_BASE_DIR": str(base),
        }
        command = [sys.executable, "-m", "cloudtrain.runtime"]
        return Node(subprocess.Popen(command, cwd=base, env=environ, stdout=log, stderr=log))


if __name__ == "__main__":
    job = JobFolder(Path(sys.argv[1]))
    supervise(job, Nodes(job))
