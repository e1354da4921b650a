"""Daemons that never outlive the tests: a keeper process starts them, and kills them when its input ends.

The keeper adopts every process that its daemons leave behind (it is their subreaper), at any depth and in any session:
a daemon's detached children end with it. It needs no rights. It survives the signals that reach pytest, so that it also
cleans up after a pytest that was killed; then it removes its folder, and unmounts what is mounted there.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
MNT_DETACH = 2


class Daemons:
    """Client of a keeper. Use it as a context manager; ``folder`` is removed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Daemons:
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal reaches pytest only
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait(60)

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a daemon; its output is appended to ``log/NAME``. Returns its pid."""
        self._pids[name] = self._ask(do="start", name=name, command=list(command), env=dict(env))
        return self._pids[name]

    @property
    def names(self) -> list[str]:
        return list(self._pids)

    def pid(self, name: str) -> int:
        return self._pids[name]

    def is_alive(self, name: str) -> bool:
        return bool(self._ask(do="alive", pid=self._pids[name]))

    def send(self, name: str, number: int) -> None:
        os.kill(self._pids[name], number)

    def stop(self, name: str, number: int = signal.SIGTERM, patience: float = 10) -> None:
        """Send a signal and wait for the end of the daemon; after ``patience`` seconds it is killed."""
        deadline = time.monotonic() + patience
        while self.is_alive(name):
            with contextlib.suppress(ProcessLookupError):
                self.send(name, number if time.monotonic() < deadline else signal.SIGKILL)
            time.sleep(0.02)

    def log(self, name: str) -> str:
        return (self.folder / "log" / name).read_text(errors="replace")

    def _ask(self, **message: Any) -> int:
        stdin, stdout = self._keeper.stdin, self._keeper.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(message).encode() + b"\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        if isinstance(answer, str):
            raise OSError(answer)
        return int(answer)


def keep(folder: Path) -> None:
    """The keeper: obey lines of JSON on stdin until it ends, then kill all processes and remove ``folder``."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    alive: set[int] = set()

    def reap(*_: object) -> None:
        for pid in _ended():
            alive.discard(pid)

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        answer: int | str
        if message["do"] == "start":
            signal.pthread_sigmask(
                signal.SIG_BLOCK, [signal.SIGCHLD]
            )  # it may end before it is noted as alive
            try:
                answer = _spawn(folder / "log" / message["name"], message["command"], message["env"])
                alive.add(answer)
            except OSError as error:
                answer = str(error)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        else:
            answer = message["pid"] in alive
        with contextlib.suppress(OSError):  # pytest has gone: the input ends too
            os.write(1, json.dumps(answer).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _kill_all()
    _unmount_below(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _spawn(log: Path, command: list[str], env: Mapping[str, str]) -> int:
    log.parent.mkdir(exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        command[0],
        command,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
    )


def _ended() -> Iterator[int]:
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            yield pid


def _kill_all() -> None:
    """Kill the children until there are none: the kernel hands the children of a dead child to this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)  # a child that has ended keeps its id until it is waited for
        try:
            os.wait()
        except ChildProcessError:
            return


def _unmount_below(folder: Path) -> None:
    """Unmount what tests have mounted below the folder."""
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in sorted((path for path in mounted if path.startswith(f"{folder}/")), reverse=True):
        ctypes.CDLL(None).umount2(os.fsencode(path), MNT_DETACH)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
