"""Helpers for tests of local jobs."""

from __future__ import annotations

import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloudtrain import Job
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.runtime.supervisor.folder import JobFolder

TWO_RANKS = {"processes": {"processes_per_host": 2}}

DAEMONS = """
import os, subprocess, time
subprocess.Popen(["sleep", "601"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "602"])
    os._exit(0)
"""
"""The beginning of a script that leaves two daemons: one in another session, one whose parent has ended too."""

Run = Callable[..., Job]


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file with dedented text, and return its folder."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))
    return folder


def make_wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A wheel with the module ``name``, made by hand: building one takes seconds."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "x = 5\n" + "#" * 50_000)
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def wait_for_end(job: Job, timeout: float = 240) -> Job:
    """Wait for the end of the job, successful or not."""
    wait_until(lambda: job.status.is_final, f"the end of {job.name}", timeout)
    return job


def wait_for_supervisor(job: Job) -> Job:
    """Wait for the end of the supervisor. For a moment after the end of its job, it still removes files."""
    wait_until(lambda: not folder(job).is_locked(), f"the end of the supervisor of {job.name}")
    return job


def wait_until(condition: Callable[[], object], what: str, timeout: float = 240) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.05)


def events(job: Job, kind: str) -> list[dict[str, Any]]:
    """The events of one kind."""
    return [event for event in LocalPlatform().events(job.name) if event["event"] == kind]


def folder(job: Job) -> JobFolder:
    return JobFolder.of("local", job.name)


def live_processes(job: Job) -> list[str]:
    """The command lines of the job's processes, which have its folder in their environment."""
    needle = str(folder(job).path).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (process / "environ").read_bytes() and b"Z" not in state_of(process):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def state_of(process: Path) -> bytes:
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
