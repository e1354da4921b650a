"""Starts Python programs by forking a process that has imported what takes longest, such as torch or TensorFlow.

Each is a normal process with its own arguments, environment and output. Only the modules imported here are already
loaded.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

MESSAGE = 1 << 20
"""Bytes of the longest message: arguments and environment of a program."""


WITHOUT_COMPILER = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import without_compiler"
"""The line for scripts that run in a job, where they start as users' scripts do, and have an optimizer."""


@dataclass(frozen=True)
class Interpreter:
    """A Python that has imported ``modules``, with the variables that they read at their import."""

    python: str
    modules: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


COMMAND = Interpreter(
    sys.executable,
    (
        *("botocore_data", "boto3", "difflib", "cloudtrain.__main__", "cloudtrain.cli._main"),
        *("cloudtrain.cli.submit", "cloudtrain.cli.list", "cloudtrain.cli.jobs", "cloudtrain.cli._view"),
        # of packages that import their modules on first use
        *("cloudtrain.cli._commands", "cloudtrain.cli._submit_fields", "cloudtrain.submission"),
        *("cloudtrain.job", "cloudtrain.index.database", "cloudtrain._display.view", "rich.rule"),
        *("cloudtrain.history.described", "cloudtrain.history.refresh", "cloudtrain.history.shared"),
        *("cloudtrain.spec.job", "cloudtrain.spec.documents", "cloudtrain.spec.warnings"),
        *("cloudtrain.spec._loader", "cloudtrain.spec.explain", "cloudtrain.observe.summary"),
        *("cloudtrain.packaging._pack", "cloudtrain.packaging.imports"),
        *("cloudtrain.platforms.local.platform", "cloudtrain.platforms.local.render"),
        *("cloudtrain.platforms.supervised.job_summary", "cloudtrain.observe.timeline.recent"),
    ),
)
"""For the ``cloudtrain`` program."""
SUPERVISOR = Interpreter(
    sys.executable,
    (
        *("botocore_data", "boto3", "cloudtrain.platforms.supervised.main"),
        *("cloudtrain.platforms.local.supervisor", "cloudtrain.platforms.local.doctor"),
        # which a supervisor imports when an attempt ends, and a host when it starts and when it uploads
        *("cloudtrain.runtime.supervisor.event_summary", "cloudtrain.observe.goodput"),
        *("cloudtrain.observe.summary", "cloudtrain.runtime.checkpoint_copies", "cloudtrain.link.tls"),
        *("cloudtrain.runtime.outputs.upload", "cloudtrain.storage.file", "cloudtrain.storage.transfer"),
        "cloudtrain.environment.job",
    ),
)
"""For the supervisors of jobs on this machine, and their hosts, which they fork."""
NUMPY = Interpreter(sys.executable, ("botocore_data", "numpy"))
TORCH = Interpreter(
    sys.executable,
    (
        "botocore_data",
        "torch._dynamo",  # the first optimizer imports it
        "torch.distributed.nn.functional",
        "torch.distributed.tensor",  # the first comparison imports it
    ),
)


def tensorflow(python: str, variables: Mapping[str, str]) -> Interpreter:
    """TensorFlow, Keras, and torch, which carries the data of the ranks, in the environment of ``python``.

    Args:
        variables: the environment of the program to start.
    """
    read = ("TF_CPP_MIN_LOG_LEVEL", "TF_USE_LEGACY_KERAS")
    chosen = tuple((name, variables[name]) for name in read if name in variables)
    return Interpreter(python, ("tensorflow", "torch"), chosen)


class Program:
    """A started program, with the part of the interface of `subprocess.Popen` that the tests use."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = end
        """The pipe from which its exit code is read."""

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            self.returncode = int(os.read(self._end, 16) or -signal.SIGKILL)
            os.close(self._end)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


_LOCK = threading.Lock()
"""Between a request and its answer."""


def start(
    command: Sequence[str],
    env: Mapping[str, str],
    stdout: IO[Any],
    stderr: IO[Any],
    cwd: Path | None = None,
    interpreter: Interpreter = TORCH,
    *,
    stdin: IO[Any] | socket.socket | None = None,
    session: bool = False,
) -> Program:
    """Start ``command`` in ``cwd``: a file of Python and its arguments, or ``-m`` and a module."""
    read, write = os.pipe()
    request = {"command": [str(part) for part in command], "env": dict(env), "cwd": str(cwd or Path.cwd())}
    files = [stdout.fileno(), stderr.fileno(), write, *([stdin.fileno()] if stdin else [])]
    with _LOCK:
        server = _server(interpreter)
        socket.send_fds(server, [json.dumps({**request, "session": session}).encode()], files)
        pid = int(server.recv(16))
    os.close(write)
    return Program(pid, read)


@functools.cache
def _server(interpreter: Interpreter) -> socket.socket:
    """The process from which programs are forked. It ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, its):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
    with its:
        subprocess.Popen(
            [interpreter.python, __file__, str(its.fileno()), *interpreter.modules],
            pass_fds=[its.fileno()],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                **dict(interpreter.variables),
            },
            cwd=Path(__file__).anchor,
            stdin=subprocess.DEVNULL,
        )
    return ours


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for every request. Returns the program in the forked process, and None in this one at the end."""
    ends: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([requests, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            for pid in list(ends):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    end = ends.pop(pid)
                    with contextlib.suppress(BrokenPipeError):  # no one waits for it
                        os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(end)
        if requests in ready:
            message, files, _, _ = socket.recv_fds(requests, MESSAGE, 4)
            if not message:
                return None
            stdout, stderr, end, *stdin = files
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(stdout, 1)
                os.dup2(stderr, 2)
                for number in stdin:
                    os.dup2(number, 0)
                for number in (*files, woken, wake, *ends.values()):
                    os.close(number)
                requests.close()
                program: dict[str, Any] = json.loads(message)
                return program
            ends[pid] = end
            for number in (stdout, stderr, *stdin):
                os.close(number)
            requests.send(str(pid).encode())


def become(program: Mapping[str, Any]) -> None:
    """Run the program as if this were a new interpreter."""
    os.chdir(program["cwd"])
    os.environ.clear()
    os.environ.update(program["env"])
    tempfile.tempdir = None  # it may be that of the environment before
    if program["session"]:
        os.setsid()
    sys.argv = list(program["command"])
    extra = program["env"].get("PYTHONPATH", "")
    sys.path[:] = [*filter(None, extra.split(os.pathsep)), *sys.path[1:]]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__")
    else:
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


def run(program: Mapping[str, Any]) -> NoReturn:
    """Run the program and end. Its modules are left as they are: to delete torch's would take 0.3 s of CPU time."""
    code = 0
    try:
        become(program)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    # The first steps of an interpreter that ends
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            code = 120
    os._exit(code & 0xFF)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    if "botocore_data" in sys.argv:
        sys.modules["botocore_data"].load("s3")
    gc.freeze()
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        run(program)
