"""Runs programs that read the stacks of other processes: py-spy or pystack, if one of them is installed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cloudtrain._system.patterns import pattern

LARGEST = 1 << 20
"""The most characters of a program's output that are read."""
LEAST_SECONDS = 1.0
MOST_FRAMES = 200
LONGEST_FUNCTION = 120
"""The most characters of a function's name. Names of C++ templates can have thousands."""

_PYSTACK_FRAME = pattern(r'^\s*(?:\((?:Python|C)\) )?File "(.*)", line (\d+), in (.*?)(?: \((.*)\))?$')
_PYSTACK_THREAD = pattern(r"^Traceback for thread (\d+)")


class Frame(NamedTuple):
    """A call on a stack."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})" if self.line else f"{self.function} ({self.file})"


class Tracer(NamedTuple):
    """A program that reads the stacks of a process, which it stops meanwhile."""

    program: str

    @classmethod
    def find(cls, folders: Iterable[str] = ()) -> Tracer | None:
        """The first of py-spy and pystack in these folders or on the PATH."""
        path = os.pathsep.join([*filter(None, folders), os.environ.get("PATH", os.defpath)])
        found = (shutil.which(name, path=path) for name in ("py-spy", "pystack"))
        return next((cls(program) for program in found if program), None)

    @property
    def name(self) -> str:
        return Path(self.program).name

    def frames(self, pid: int, seconds: float, *, native: bool) -> tuple[list[Frame], str]:
        """The calls of the main thread, with the innermost first; if there are none, the reason."""
        if self.name == "py-spy":
            command = [self.program, "dump", "--json", *(["--native"] if native else []), "--pid", str(pid)]
        else:
            command = [self.program, "remote", *(["--native"] if native else []), str(pid)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(seconds, LEAST_SECONDS),
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return [], f"{self.name} took longer than {seconds:.0f} s"
        except OSError as error:
            return [], f"{self.name}: {error.strerror}"
        read = _of_py_spy if self.name == "py-spy" else _of_pystack
        found: list[Frame] = []
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
            found = [*map(_shortened, read(done.stdout[:LARGEST], pid)[:MOST_FRAMES])]
        lines = done.stderr.strip().splitlines()
        return found, "" if found else f"{self.name}: {lines[-1][:200] if lines else 'no stack'}"


def _shortened(frame: Frame) -> Frame:
    if len(frame.function) <= LONGEST_FUNCTION:
        return frame
    return frame._replace(function=f"{frame.function[: LONGEST_FUNCTION - 1]}…")


def _of_py_spy(text: str, pid: int) -> list[Frame]:
    threads: Sequence[dict[str, Any]] = json.loads(text)
    own = [thread for thread in threads if thread.get("os_thread_id") == pid] or threads[-1:]
    frames = [
        Frame(str(frame["name"]), str(frame["filename"]), int(frame.get("line") or 0))
        for frame in own[0]["frames"]
        if not str(frame["name"]).startswith("0x")
    ]
    if frames and own[0].get("owns_gil"):
        frames[0] = frames[0]._replace(function=f"{frames[0].function} [holds the GIL]")
    return frames


def _of_pystack(text: str, pid: int) -> list[Frame]:
    """Parse the output of pystack, whose innermost call is the last one."""
    threads: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if thread := _PYSTACK_THREAD.match(line):
            frames = threads.setdefault(int(thread[1]), [])
        elif frame := _PYSTACK_FRAME.match(line.replace(" (inlined)", "")):
            frames.append(Frame(frame[3], frame[4] if frame[1] == "???" else frame[1], int(frame[2])))
    chosen = threads.get(pid) or next(iter(threads.values()), [])
    return chosen[::-1]
