"""The process of one host: a fork of the supervisor, which has already loaded the runtime.

A container runs ``python -m cloudtrain.runtime``. Here the runtime starts without another interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from cloudtrain.contract import FailureReport
from cloudtrain.runtime.entrypoint import main  # loaded once, for all forked hosts


class HostProcess:
    """One runtime. ``returncode`` is as in `subprocess.Popen`: negative for a signal, None while it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    @classmethod
    def start(cls, environment: Mapping[str, str], cwd: Path, log: int, closed: int) -> HostProcess:
        """Fork; the child runs the runtime and nothing else.

        Args:
            environment: all of the runtime's environment.
            log: the descriptor of its output.
            closed: a descriptor that the child closes.
        """
        pid = os.fork()
        if pid:
            return cls(pid)
        code = 1
        try:
            os.close(closed)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
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
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def lost(self, name: str) -> FailureReport:
        code = self.returncode or 0
        ending = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return FailureReport.host_lost(name, f"its runtime {ending}: see job.log", time.time())

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
