"""The folder for copies of checkpoints in the memory of this host. It outlives the ranks and the runtime.

The next attempt on this host reuses it, unless the host has missed an attempt, in which the training may have taken
another course. The last attempt removes it. A killed runtime's folder is removed when another runtime of this user
starts.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from cloudtrain._system.files import lock, open_regular, read_regular
from cloudtrain._system.memory import SHARED_MEMORY
from cloudtrain.checkpoint.memory.files import OFF, SPACE, VARIABLE, is_private, remove_header, write_whole
from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Paths
from cloudtrain.contract.trackers import ATTEMPT_ID, RUN_ID
from cloudtrain.runtime.outcome import HostOutcome
from cloudtrain.runtime.output import say
from cloudtrain.runtime.sampling.machine import Machine
from cloudtrain.storage import retry_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.checkpoint.store.attempts import Attempt
    from cloudtrain.runtime.checkpoint_copies import CheckpointCopies
    from cloudtrain.runtime.commit_process import Request
    from cloudtrain.runtime.host_config import HostConfig

MARK = "memory"
"""The file in ``input/config`` with the path of the folder. It stays there for the next attempt."""
OWNER, ATTEMPT, IDENTITY = "owner", "attempt", "identity"
COMMITTED = "committed"
"""The file that exists while the storage has everything in the folder."""
UNSAVED = "unsaved"
"""The folder, within that of a host, for the last checkpoint of a job if it could not be stored."""

LOOK_SECONDS = 1.0
"""Seconds between two looks at the memory of the host."""
RESERVE = 0.05
"""Copies are given up if a smaller share of the memory of the host, its control group or the file system is free."""
SPACE_LEFT = 0.2
"""The share that a new copy leaves free, because the script may need it before the next look."""
LARGE = 20 << 30
"""File systems in memory count with at most this size in bytes: data loaders and NCCL need no larger share."""
AWAY_SECONDS = 2.0
"""How long a job that restarts waits for storage that does not answer."""
LEFT_SECONDS = 30.0
"""How long a completed job waits for storage that does not answer, at most."""
STALE_SECONDS = 3600.0
"""After this time without an attempt, a folder counts as abandoned."""


class CheckpointMemory:
    """The memory folder of this host, if it can have one.

    Args:
        attempt: the number of the attempt that begins.
        environ: the variables of the ranks, with the identity of the job and the folder of the file system.
        restarts_here: see `Settings`.
    """

    def __init__(
        self, paths: Paths, attempt: int, environ: Mapping[str, str], *, restarts_here: bool = False
    ) -> None:
        self._mark, self._environ, self._restarts_here = paths.input_config / MARK, environ, restarts_here
        self.folder: Path | None = None
        self._attempt_id, self._has_started = "", False
        """The identity of the attempt; until it starts, the identity of the last attempt that started here."""
        self.problem = ""
        """Why there is no folder, although one was expected."""
        self._owner = -1
        self._closed = threading.Event()
        self._given_up = False
        """Whether the ranks have to free all copies."""
        self.stays = False
        """Whether the copies stay in memory for the next attempt: see `may_stay`."""
        self._asked: _Asked | None = None
        root = environ.get(VARIABLE) or SHARED_MEMORY
        if root in ("", OFF):
            return
        try:
            _remove_stale(Path(root))
            self.folder = self._open(Path(root), attempt) or self._make(Path(root))
            write_whole(self.folder / ATTEMPT, str(attempt).encode())
            with contextlib.suppress(OSError, ValueError):
                self._attempt_id = read_regular(self.folder / IDENTITY, 1000).decode()
            self._machine = Machine()
            self._look()
        except OSError as error:
            self.folder, self.problem = None, f"{root}: {error.strerror}"
            return
        threading.Thread(target=self._watch, name="checkpoint-memory", daemon=True).start()

    @property
    def variables(self) -> dict[str, str]:
        """The variable for the ranks with the folder, or why there is none."""
        return {VARIABLE: str(self.folder) if self.folder else self.problem or OFF}

    def starts(self, attempt_id: str) -> None:
        """Record that the ranks of the attempt with this identity start."""
        self._attempt_id, self._has_started = attempt_id, True
        if self.folder:
            with contextlib.suppress(OSError):
                (self.folder / COMMITTED).unlink(missing_ok=True)  # works even if nothing can be written
                write_whole(self.folder / IDENTITY, attempt_id.encode())

    def ask_storage(self) -> None:
        """Check whether the storage answers while the other ranks end, after a rank has failed."""
        if self.folder and self._restarts_here and self._asked is None:
            self._asked = _Asked(self.folder)

    def may_stay(self, failure: FailureReport) -> bool:
        """Whether the copies may stay for the next attempt: it runs on this host, and the storage does not answer."""
        # SIGTERM may come from a scheduler that takes this host back, so that the next attempt runs elsewhere
        was_killed = failure.failure_class == FailureClass.KILLED and failure.signal != signal.SIGTERM
        if self.folder and self._restarts_here and was_killed:
            from cloudtrain.checkpoint.memory.source import checkpoints_in

            self.ask_storage()
            for uri, found in checkpoints_in(self.folder).items():
                if self._asked and uri in self._asked.silent():
                    self.stays = True
                    say(f"checkpoint {max(found)} stays in the memory of this host: {uri} does not answer")
        return self.stays

    def end(
        self, outcome: HostOutcome, warn: Callable[[str], None], copies: CheckpointCopies | None = None
    ) -> None:
        """Commit the newest checkpoint that the ranks have left, and keep the folder for the next attempt.

        Does so also for lost hosts whose ``copies`` this one holds. Removes the folder if the job has completed and the
        storage has everything.
        """
        self._closed.set()
        folder, self.folder = self.folder, None
        if folder is None:
            return
        is_complete = outcome.status == JobStatus.COMPLETED or (
            outcome.failure is not None and outcome.failure.failure_class == FailureClass.UPLOAD
        )
        is_left = self.stays or not _commit(folder, warn, self._attempt, is_complete=is_complete)
        keeps = is_left if is_complete else _has_checkpoints(folder)
        if copies:
            copies.done()
            for host, held in copies.lost_owners() if not is_complete else ():
                is_left |= not _commit(held, warn, self._attempt, f"the memory of this host, for {host}")
                keeps |= _has_checkpoints(held)
            copies.close()
            keeps |= not is_complete and any(folder.glob("*/*.json"))
        if not keeps:
            _remove(folder)
            with contextlib.suppress(OSError):
                self._mark.unlink()
        else:
            with contextlib.suppress(OSError):
                os.utime(folder)
                if not is_left:
                    write_whole(folder / COMMITTED, b"")
        os.close(self._owner)

    def _attempt(self) -> Attempt | None:
        """The attempt for which copies are committed: this one or, if it has not started, the last one that has."""
        from cloudtrain.checkpoint.store.attempts import Attempt

        attempt = Attempt.of({**self._environ, ATTEMPT_ID: self._attempt_id})
        return attempt and attempt._replace(has_ended=not self._has_started)

    def _open(self, root: Path, attempt: int) -> Path | None:
        """Open the folder of the previous attempt, or of this one if the runtime was restarted. Raises OSError."""
        folder = _marked(self._mark)
        if folder is None or folder.parent != root:
            return None
        owner = _own(folder)
        if owner is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            if int(read_regular(folder / ATTEMPT, 100)) in (attempt - 1, attempt):
                self._owner = owner
                os.utime(folder)
                return folder
        _remove(folder)
        os.close(owner)
        return None

    def _make(self, root: Path) -> Path:
        """Create a new folder. Raises OSError."""
        folder = root / f"{_prefix()}{os.urandom(8).hex()}"
        folder.mkdir(mode=0o700)
        owner = _own(folder)
        assert owner is not None
        self._owner = owner
        with contextlib.suppress(
            OSError
        ):  # a platform may mount it read-only; then the next attempt begins without copies
            write_whole(self._mark, str(folder).encode())
        return folder

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            with contextlib.suppress(OSError):
                self._look()

    def _look(self) -> None:
        """Report the space for more copies; free all copies before the memory of the host is full. Raises OSError."""
        folder = self.folder
        if folder is None:
            return
        status = os.statvfs(folder)
        unit = status.f_frsize
        amounts = self._machine.free_memory()
        if status.f_blocks:  # otherwise only the machine limits it, as with some volumes in memory
            amounts.append((status.f_bavail * unit, min(status.f_blocks * unit, LARGE)))
        is_full = any(free < RESERVE * total for free, total in amounts)
        if is_full or self._given_up:
            copies = [*folder.glob("*/*.data"), *folder.glob("*.data")]  # those of other hosts first
            taken = [_take_back(path) for path in copies]
            self._given_up |= any(taken)
        space = min((free - SPACE_LEFT * total for free, total in amounts), default=0)
        write_whole(folder / SPACE, b"-1" if self._given_up else str(max(int(space), 0)).encode())


class _Asked:
    """Checks in a thread whether the storage of the copies in a memory folder answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._silent: set[str] = set()
        self._thread = threading.Thread(target=self._ask, name="storage-asked", daemon=True)
        self._thread.start()

    def silent(self) -> set[str]:
        """The URIs that do not answer."""
        self._thread.join()
        return self._silent

    def _ask(self) -> None:
        from cloudtrain.runtime.commit_process import ON_DISK, uris_in
        from cloudtrain.storage.reachable import answers

        with contextlib.suppress(OSError):  # if the folder is missing, there are no copies
            for uri in uris_in(self._folder):
                # access to a folder may hang, and would block this process: see `commit_process`
                if not uri.startswith(ON_DISK) and not answers(uri, AWAY_SECONDS):
                    self._silent.add(uri)


def memory_of(config: HostConfig, environ: Mapping[str, str]) -> CheckpointMemory:
    """The memory folder of the host of ``config``."""
    settings, environ = config.settings, {**environ, RUN_ID: config.run_id}
    restarts_here = settings.restarts_here and config.host.count == 1
    return CheckpointMemory(config.paths, settings.attempt, environ, restarts_here=restarts_here)


def copies_of(
    config: HostConfig, memory: CheckpointMemory, keys: Mapping[str, bytes]
) -> CheckpointCopies | None:
    """The copies that this host exchanges with others; None if it can neither hold nor send any."""
    host = config.host
    if host.count == 1 or memory.folder is None:
        return None
    from cloudtrain.runtime.checkpoint_copies import CheckpointCopies

    on_machine = config.settings.hosts_on_machine == host.count
    try:
        return CheckpointCopies(memory.folder, host.current, host.hosts, keys, on_machine=on_machine)
    except OSError:
        return None


def _commit(
    folder: Path,
    warn: Callable[[str], None],
    attempt_of: Callable[[], Attempt | None],
    where: str = "the memory of this host",
    *,
    is_complete: bool = False,
) -> bool:
    """Commit the newest checkpoints. Returns whether the storage has all of them."""
    if not any(folder.glob("*.json")):
        return True
    from cloudtrain.checkpoint.memory.commit import commit_newest
    from cloudtrain.runtime.commit_process import Request, commit_in_process, may_hang

    attempt, is_whole = attempt_of(), True

    def report(is_committed: bool, message: str) -> None:
        nonlocal is_whole
        (say if is_committed else warn)(message)
        is_whole &= is_committed

    if attempt and may_hang(folder):
        end = retry_policy.default.until() if retry_policy.default.until else None
        seconds = 0.0 if end is None else max(end - time.monotonic(), 0.0)
        request = Request(str(folder), attempt, where, is_complete=is_complete, seconds=seconds)
        try:
            problem = commit_in_process(request, os.environ, report, math.inf)
        except OSError as error:  # Unreachable, too
            problem = str(error)
        if problem:
            report(False, f"what is in {where} cannot be committed: {problem}")
    elif attempt:
        for one in commit_newest(folder, attempt, where, is_complete=is_complete):
            report(*one)
    return is_whole


def _has_checkpoints(folder: Path) -> bool:
    if not any(folder.glob("*.json")):
        return False
    from cloudtrain.checkpoint.memory.source import checkpoints_in

    return bool(checkpoints_in(folder))


def remove_memory(paths: Paths, save: Callable[[Path], bool] = lambda _folder: True) -> None:
    """Remove the folder that the runtime of a host on this machine has kept for a next attempt, as there is none.

    Args:
        save: saves the checkpoints that exist only in this folder. Returns whether all were saved.

    Raises OSError.
    """
    folder = _marked(paths.input_config / MARK)
    owner = _own(folder) if folder else None
    if folder and owner is not None:
        has_all = os.path.lexists(folder / COMMITTED) or not any(folder.glob("*.json"))
        if has_all or save(folder):
            _remove(folder)
        os.close(owner)


def left_commit(folder: Path, run_id: str, base: Path, seconds: float) -> Request:
    """The request to commit the copies that an ended job has left in ``folder``.

    Args:
        run_id: the identity of the job.
        base: the folder of the host, which its ranks may access as ``/opt/ml``.
        seconds: how long to try unavailable storage.

    Raises OSError.
    """
    from cloudtrain.checkpoint.memory.source import WHERE
    from cloudtrain.checkpoint.store.attempts import ATTEMPT as ATTEMPT_NUMBER, Attempt
    from cloudtrain.runtime.commit_process import Request

    identity = ""
    with contextlib.suppress(OSError, ValueError):
        identity = read_regular(folder / IDENTITY, 1000).decode()
    number = read_regular(folder / ATTEMPT, 100).decode("ascii", "replace")
    attempt = Attempt.of({RUN_ID: run_id, ATTEMPT_NUMBER: number, ATTEMPT_ID: identity})
    if attempt:
        attempt = attempt._replace(has_ended=True)
    return Request(
        str(folder), attempt, WHERE, base=str(base), elsewhere=str(base / UNSAVED), seconds=seconds
    )


def _remove_stale(root: Path) -> None:
    """Remove the abandoned folders of this user. Raises OSError."""
    prefix = _prefix()
    for entry in os.scandir(root):
        if entry.name.startswith(prefix) and is_private(entry.path):
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                    owner = _own(Path(entry.path))
                    if owner is not None:
                        _remove(Path(entry.path))
                        os.close(owner)


def _prefix() -> str:
    return f"cloudtrain-{os.geteuid()}-"


def _marked(mark: Path) -> Path | None:
    """The folder whose path is in ``mark``; None if the path is invalid, because the script can write there too."""
    with contextlib.suppress(OSError, ValueError):
        path = read_regular(mark, 4096).decode()
        if os.path.isabs(path) and re.fullmatch(f"{_prefix()}[0-9a-f]{{16}}", os.path.basename(path)):
            return Path(path) if is_private(path) else None
    return None


def _own(folder: Path) -> int | None:
    """Lock ``folder``. Returns the descriptor of the lock; None if another runtime holds it. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    owner = open_regular(folder / OWNER, flags, 0o600)
    if lock(owner, wait=False):
        return owner
    os.close(owner)
    return None


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _take_back(path: Path) -> bool:
    """Free the memory of a copy. Returns False if there is nothing to free, or if a process uses the copy."""
    try:
        descriptor = open_regular(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not os.fstat(descriptor).st_size or not lock(descriptor, wait=False):
            return False
        remove_header(path.with_suffix(""))
        os.ftruncate(descriptor, 0)
        return True
    finally:
        os.close(descriptor)
