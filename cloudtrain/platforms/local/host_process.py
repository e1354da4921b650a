"""The process of one host: a fork of the supervisor, which has already loaded the runtime.

A container runs ``python -m cloudtrain.runtime``, and so does a host on a system whose forks are not safe. Otherwise
the runtime starts without another interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from cloudtrain._system.processes import FORKS_SAFELY, exit_code, fork
from cloudtrain._system.signals import ENDING, blocked
from cloudtrain.platforms.local import namespace
from cloudtrain.runtime.entrypoint import main  # loaded once, for all forked hosts
from cloudtrain.runtime.run_folder import LIBRARY, RUN_RUNTIME


class NoOptMl(Exception):
    """The reason why a host cannot have its own ``/opt/ml``."""


class HostProcess:
    """One runtime. ``returncode`` is as in `subprocess.Popen`: negative for a signal, None while it runs."""

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
            forks: whether this process may fork: it has no other threads.

        Raises:
            NoOptMl: the machine does not permit that. No process is left.
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

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class _SpawnedProcess(HostProcess):
    """A runtime that another interpreter runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process.pid)
        self._process = process

    def poll(self) -> int | None:
        self.returncode = self._process.poll()
        return self.returncode
