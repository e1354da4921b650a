"""Takes the stacks of this host's ranks, and of the processes that they have started.

A rank dumps its Python stack itself, into a file, when its main thread receives `stack_signal`: the handler is C code
of faulthandler, which needs neither the interpreter lock nor any permission, and reads only its thread's data.
System calls continue after it, except those with a time limit, which Python repeats. Forked children have the same
handler. The kernel shows whether a process can receive the signal: stopped processes, and those in uninterruptible
sleep, are reported without a wait. Native frames and other programs require py-spy or pystack, if one is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtrain._system.files import READ_REGULAR, open_regular
from cloudtrain._system.mounts import is_below_network_mount, read_mounts
from cloudtrain._system.patterns import pattern
from cloudtrain._system.processes import stat_fields
from cloudtrain.runtime.diagnose.tracers import Frame, Tracer
from cloudtrain.runtime.run_folder import stack_signal, stacks_path

RESPONSE_SECONDS = 1.0
"""Seconds that a process may take to dump its stacks."""
POLL_SECONDS = 0.02
LARGEST_DUMP = 1 << 18
"""The most bytes that are read of one dump."""
MOST_CHILDREN = 32
"""The most processes below one rank whose stacks are taken."""
LONGEST_NAME = 40
CHILD_SECONDS = 1.0
"""The age below which a child of a rank may be about to execute another program, which the signal would kill."""
LOCK_SECONDS = 1.0
"""The time to wait for another request to end, in addition to the time limit of this one."""

_THREAD = pattern(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = pattern(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_OWN = pattern(r"/cloudtrain/runtime/(?:rank|launchers/[a-z_]+)\.py$")
"""The programs in which a script runs."""

_taking = threading.Lock()
"""Held by one request at a time, because each rank writes all dumps into the same file."""


@dataclass(frozen=True)
class RankProcess:
    """A rank, or a process that it has started."""

    rank: int
    local: int
    pid: int
    name: str = ""
    """The name of a process that the rank has started; empty for the rank itself."""


@dataclass
class Taken:
    """The stack of one process, or the reason why there is none."""

    process: RankProcess
    text: str = ""
    """The dump, as faulthandler writes it."""
    frames: Sequence[Frame] = ()
    """The calls of the main thread, with the innermost first."""
    state: str = ""
    """See `cloudtrain.observe.stacks.StackGroup`."""


def take(
    run: str,
    ranks: Sequence[RankProcess],
    seconds: float,
    tracer: Tracer | None = None,
    *,
    native: bool = False,
    all_threads: bool = False,
) -> list[Taken]:
    """Take the stacks of these ranks and of the processes that they have started, in about ``seconds`` at most.

    Args:
        run: the run folder.
        tracer: the program for stacks that a process cannot dump itself; None if there is none.
        native: whether to include native frames.
        all_threads: whether to dump all threads, for ranks that will be ended.
    """
    until = time.monotonic() + seconds
    if not _taking.acquire(timeout=seconds + LOCK_SECONDS):
        return [Taken(process, state="was not looked at: another request did not end") for process in ranks]
    try:
        dumps = _dump_together([_Dump(run, process, all_threads) for process in ranks], until)
        below = [_children(process) for process in ranks]
        while any(below):  # one child of each rank at a time, because they share the rank's file
            batch = [processes.pop(0) for processes in below if processes]
            dumps += _dump_together([_Dump(run, process, all_threads) for process in batch], until)
    finally:
        _taking.release()
    taken = [dump.result() for dump in dumps]
    for found in taken:
        if tracer and (native or not found.frames) and not found.state.startswith(_STOPPED):
            if time.monotonic() > until:
                break
            frames, why = tracer.frames(found.process.pid, until - time.monotonic(), native=native)
            if frames:
                found.frames, found.state = _below_the_script(frames), ""
            elif native:
                found.state = "; ".join(filter(None, (found.state, why)))
    return taken


_STOPPED = "stopped"
_NO_HANDLER = "a program without the handler of cloudtrain"
_STARTING = "is being started"


class _Dump:
    """One process that is to dump its stacks."""

    def __init__(self, run: str, process: RankProcess, all_threads: bool) -> None:
        self.process = process
        self.state = ""
        self.is_over = False
        self._path = stacks_path(run, process.local)
        self._start = self._size = 0
        self._all_threads = all_threads
        self._signal = stack_signal(all_threads=all_threads)
        self._mask = 1 << (self._signal - 1)
        self._blocking: set[int] = set()
        """The threads that blocked the signal before it was sent."""
        self._began = 0.0
        self._is_redirected = False

    def begin(self) -> None:
        """Send the signal if the process has a handler and is not stopped."""
        self._began = time.monotonic()
        status = _status(self.process.pid)
        self._start = self._size = self._file_size()
        letter = status.get("State", "")[:1]
        if not status and not Path("/proc/self/stat").exists():  # another system
            self._send()
        elif not status or letter in "ZX":
            self.state, self.is_over = "has ended", True
        elif letter in "Tt":
            self.state = f"{_STOPPED} by a signal" if letter == "T" else f"{_STOPPED} by a debugger"
            self.is_over = True
        elif not _mask(status, "SigCgt") & self._mask:
            self.state, self.is_over = _NO_HANDLER, True
        else:
            self._blocking = set(self._threads_that_block())
            if not self._is_pending(status):  # a pending signal is from an earlier request
                self._send()

    def look(self) -> None:
        """Check whether the dump is complete, or can no longer be expected."""
        if self.is_over:
            return
        size = self._file_size()
        grows, self._size = size != self._size, size
        status = _status(self.process.pid)
        if size > self._start and not grows and not self._is_dumping(status):
            self.is_over = True
            if status.get("State", "").startswith("D"):
                self.state = _asleep(self.process.pid)
        elif not status and Path("/proc/self/stat").exists():
            self.state, self.is_over = "has ended", True
        elif time.monotonic() - self._began > RESPONSE_SECONDS / 2 and size == self._start:
            self._redirect()
            if time.monotonic() - self._began > RESPONSE_SECONDS:
                self.give_up(status)

    def give_up(self, status: dict[str, str] | None = None) -> None:
        if self.is_over:
            return
        status = _status(self.process.pid) if status is None else status
        self.is_over = True
        if self._size > self._start:
            return
        asleep = status.get("State", "").startswith("D")
        self.state = _asleep(self.process.pid) if asleep else "does not respond"

    def result(self) -> Taken:
        text = ""
        if self._size > self._start:
            with contextlib.suppress(OSError), open(open_regular(self._path, READ_REGULAR), "rb") as file:
                file.seek(self._start)
                size = min(self._size - self._start, LARGEST_DUMP)
                text = file.read(size).decode("utf-8", "backslashreplace").strip()
        frames = _below_the_script(main_thread(text))
        return Taken(self.process, text, frames, self.state or ("" if frames else "has no Python stack"))

    def _send(self) -> None:
        """Send the signal, unless it would kill the process because that has executed another program meanwhile.

        A child that has just been started, or that blocks the signal, may be about to do so.
        """
        is_child, status = bool(self.process.name), _status(self.process.pid)
        if is_child and (_mask(status, "SigBlk") & self._mask or _age(self.process.pid) < CHILD_SECONDS):
            self.state, self.is_over = _STARTING, True
        elif status and not _mask(status, "SigCgt") & self._mask:
            self.state, self.is_over = _NO_HANDLER, True
        if self.is_over:
            return
        try:
            if not _signal_thread(self.process.pid, self.process.pid, self._signal):
                os.kill(self.process.pid, self._signal)
        except OSError:
            self.state, self.is_over = "has ended", True

    def _is_dumping(self, status: dict[str, str]) -> bool:
        """Whether the signal is pending, or a thread is in its handler, during which the signal is blocked."""
        if self._is_pending(status) and not self._is_redirected:
            return True
        return bool(set(self._threads_that_block()) - self._blocking)

    def _is_pending(self, status: dict[str, str]) -> bool:
        return bool((_mask(status, "ShdPnd") | _mask(status, "SigPnd")) & self._mask)

    def _threads_that_block(self) -> Iterable[int]:
        for thread in self._threads():
            status = _status(self.process.pid, thread)
            if _mask(status, "SigBlk") & self._mask:
                yield thread

    def _redirect(self) -> None:
        """Make another thread dump the stacks of all threads if the main thread is in uninterruptible sleep."""
        if self._is_redirected or not self._all_threads:
            return
        self._is_redirected = True
        for thread in self._threads():
            status = _status(self.process.pid, thread)
            takes = _mask(status, "SigCgt") & ~_mask(status, "SigBlk") & self._mask
            if takes and status.get("State", "D")[:1] in "RS":
                _signal_thread(self.process.pid, thread, self._signal)
                return

    def _threads(self) -> list[int]:
        try:
            return sorted(map(int, os.listdir(f"/proc/{self.process.pid}/task")))
        except OSError:
            return []

    def _file_size(self) -> int:
        try:
            return os.stat(self._path, follow_symlinks=False).st_size
        except OSError:
            return 0


def _dump_together(dumps: list[_Dump], until: float) -> list[_Dump]:
    for dump in dumps:
        dump.begin()
    while not all(dump.is_over for dump in dumps) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        for dump in dumps:
            dump.look()
    for dump in dumps:
        dump.give_up()
    return dumps


def _status(pid: int, thread: int | str = "") -> dict[str, str]:
    """The fields of /proc/PID/status (proc(5)); none if there is no such process, or no such file system."""
    try:
        with open(
            f"/proc/{pid}/task/{thread}/status" if thread else f"/proc/{pid}/status", errors="replace"
        ) as file:
            return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    except OSError:
        return {}


def _mask(status: dict[str, str], name: str) -> int:
    try:
        return int(status.get(name, "0"), 16)
    except ValueError:
        return 0


def _age(pid: int) -> float:
    """Seconds since a process was started; 0 if that is unknown."""
    try:
        started = int(stat_fields(pid)[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, LookupError):
        return 0.0


def _asleep(pid: int) -> str:
    """The state of a process in uninterruptible sleep, with the kernel function in which it waits.

    Includes a file that the process has open on a network file system, because that may not respond.
    """
    where = ""
    with contextlib.suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text()
    state = f"sleeps uninterruptibly in the kernel{f' ({where})' if where.isidentifier() else ''}"
    mounts = [*read_mounts(Path(f"/proc/{pid}/mountinfo"))]
    for descriptor in Path(f"/proc/{pid}/fd").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            file = os.readlink(descriptor)  # does not block, unlike access to the file itself
            if file.startswith("/") and is_below_network_mount(file, mounts):
                return f"{state}, with {file} open, on a network file system"
    return state


def _signal_thread(pid: int, thread: int, number: int) -> bool:
    """Call tgkill(2). False if the thread has ended, or the C library lacks the function (glibc before 2.30)."""
    import ctypes

    try:
        return bool(ctypes.CDLL(None).tgkill(pid, thread, number) == 0)
    except (AttributeError, OSError):
        return False


def _children(process: RankProcess) -> list[RankProcess]:
    """The descendants of a rank."""
    pids = [process.pid]
    for pid in pids:  # the list grows
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            pids += map(int, _read(task).split())
        if len(pids) > MOST_CHILDREN:
            break
    found = []
    for pid in pids[1 : MOST_CHILDREN + 1]:
        name = _read(
            Path(f"/proc/{pid}/comm")
        ).strip()  # reading cmdline may block if the process waits for a page
        found.append(RankProcess(process.rank, process.local, pid, name[:LONGEST_NAME] or "?"))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def main_thread(text: str) -> list[Frame]:
    """The calls of the thread that runs the script, from a dump of faulthandler."""
    found = _FRAME.findall(main_thread_text(text))
    return [Frame(function, file, int(line)) for file, line, function in found]


def main_thread_first(text: str) -> str:
    """A dump of faulthandler, reordered so that the thread that runs the script is first."""
    starts = [found.start() for found in _THREAD.finditer(text)]
    blocks = [text[start:end].strip("\n") for start, end in zip(starts, [*starts[1:], len(text)])]
    if len(blocks) < 2:
        return text
    main = next((block for block in blocks if "/runtime/rank.py" in block), blocks[-1])
    others = [block for block in blocks if block is not main]
    return text[: starts[0]] + "\n\n".join([main, *others]) + "\n"


def main_thread_text(text: str) -> str:
    """The part of a dump of faulthandler for the thread that runs the script."""
    threads = _THREAD.split(text)[1:]  # empty if the dump is of one thread, without a header
    return next((one for one in threads if "/runtime/rank.py" in one), threads[-1] if threads else text)


def _below_the_script(frames: Sequence[Frame]) -> list[Frame]:
    """``frames`` without the program that runs the script, and in a forked child without the calls before the fork."""
    found: list[Frame] = []
    for frame in frames:
        found.append(frame)
        if frame.function.endswith("_bootstrap") and frame.file.endswith("/multiprocessing/process.py"):
            break
    while len(found) > 1 and _OWN.search(found[-1].file):
        found.pop()
    return found
