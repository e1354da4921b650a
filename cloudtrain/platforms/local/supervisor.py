"""The supervisor of a local job. Its hosts are processes forked from it, because it has already loaded the runtime.

Containers run ``python -m cloudtrain.runtime`` instead, and so do hosts on a system where forking is not safe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cloudtrain._system.processes import FORKS_SAFELY, exit_code, fork
from cloudtrain._system.signals import ENDING, SIGKILL, blocked
from cloudtrain._system.sockets import LOOPBACK
from cloudtrain.contract import FailureReport, Settings
from cloudtrain.contract.host import gpus_of_host
from cloudtrain.contract.request_body import request_environment
from cloudtrain.contract.trackers import without_outer_job
from cloudtrain.platforms.local import namespace
from cloudtrain.platforms.local.namespace import no_opt_ml
from cloudtrain.platforms.supervised.main import run_supervisor
from cloudtrain.runtime.descendants import adopt_orphans, end_descendants, show_left
from cloudtrain.runtime.entrypoint import main  # loaded once, for all forked hosts
from cloudtrain.runtime.run_folder import LIBRARY, RUN_RUNTIME
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
        self._here: Sequence[str] = self.everyone
        """The hosts that are processes on this machine."""
        self._forks = FORKS_SAFELY
        adopt_orphans()
        self._interpreter = _interpreter(self._request["python"])
        self._no_opt_ml = no_opt_ml(self._request, folder.path)
        """Why hosts do not have their own ``/opt/ml``; empty if they do, or if it has not been tried."""

    def start(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        return self._with_places(self._start_here(attempt, log))

    def _start_here(self, attempt: int, log: int) -> Mapping[str, RunningHost]:
        here = [name for name in self._here if name in (*self.names, *self.spares)]
        return {name: self._start(name, attempt, log) for name in here}

    def finish(self, *, failed: bool) -> FailureReport | None:
        """End the processes that ranks of a killed runtime left running. The runtimes upload the outputs."""
        if left := end_descendants():
            self._warn(show_left(left))
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
            self._attempt_settings(attempt),
            rendezvous=str(self._folder.leader),
            master_addr="127.0.0.1",
            hosts_on_machine=sum(name in self.names for name in self._here),
            requirements_cache=str(state_home() / "environments"),
            no_opt_ml=self._no_opt_ml,
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
            **(Settings(spare=True).to_environ() if name in self.spares else {}),
        }


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


class NoOptMl(Exception):
    """The reason why a host cannot have its own ``/opt/ml``."""


class HostProcess:
    """One runtime process. ``returncode`` is as in `subprocess.Popen`: negative for a signal, None while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    @classmethod
    def start(
        cls,
        environment: Mapping[str, str],
        cwd: Path,
        log: int,
        closed: int,
        *,
        has_opt_ml: bool,
        forks: bool = FORKS_SAFELY,
    ) -> HostProcess:
        """Start a process that runs the runtime and nothing else.

        Args:
            environment: all of the runtime's environment.
            cwd: the host's folder.
            log: the descriptor of its output.
            closed: a descriptor that the process does not inherit.
            has_opt_ml: whether ``/opt/ml`` is ``cwd`` for the process and its descendants, if it is forked.
            forks: whether this process may fork, which requires that it has no other threads.

        Raises:
            NoOptMl: the machine does not permit a private ``/opt/ml``. No process remains.
        """
        if not forks:
            command = [sys.executable, "-c", RUN_RUNTIME, LIBRARY]
            with blocked(ENDING):  # until the runtime has handlers
                process = subprocess.Popen(
                    command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            return _SpawnedProcess(process)
        obstacle, report = os.pipe()
        pid = fork(held=ENDING)
        if pid:
            os.close(report)
            with open(obstacle) as file:
                reason = file.read()
            if reason:
                os.waitpid(pid, 0)
                raise NoOptMl(reason)
            return cls(pid)
        code = 1
        try:
            os.close(closed)
            os.close(obstacle)
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            if has_opt_ml:
                try:
                    namespace.enter(cwd)
                except OSError as error:
                    os.write(report, namespace.reason(error).encode())
                    os._exit(1)
            os.close(report)
            os.chdir(cwd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.clear()
            os.environ.update(environment)
            code = main()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = exit_code(self.pid)
        return self.returncode

    def lost(self, name: str) -> None:
        """Only its exit code is known."""

    def abandon(self) -> None:
        self.send_signal(SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class _SpawnedProcess(HostProcess):
    """A runtime in a new interpreter, on a system where forking is not safe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process.pid)
        self._process = process

    def poll(self) -> int | None:
        self.returncode = self._process.poll()
        return self.returncode


if __name__ == "__main__":
    run_supervisor(HostProcesses)
