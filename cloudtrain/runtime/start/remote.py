"""The program that runs a host of a job through ssh, where cloudtrain is not installed.

A supervisor starts a Python of the host, and sends it the sources of this module and of those that it imports (see
`platforms.hosts.connection`). Then both sides exchange `messages`. The host describes itself, receives the bundled
runtime, unless it has it, and the files of the job, and runs the runtime as a `node`, which sends its files back.

The end of the connection, or silence on it, ends the runtime and its ranks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import signal
import stat
import sys
import time
from typing import Any, BinaryIO

from cloudtrain._system.descriptors import unread, write_all
from cloudtrain._system.gpu_models import gpu_models
from cloudtrain._system.interfaces import own_addresses, resolve
from cloudtrain._system.owned import FolderIsOpen, own_folder
from cloudtrain.runtime.start.messages import (
    Beat,
    Data,
    Facts,
    File,
    Folder,
    Input,
    Inquiry,
    Message,
    NodeJob,
    Refused,
    Release,
    Runtime,
    fingerprint,
)

assert sys.platform != "win32", "jobs run on Linux and macOS"

BEAT_SECONDS = 3.0
PAUSED_SECONDS = 5.0
"""A longer gap between two looks means that this process itself was paused."""
TOKEN = 100
"""The most bytes of a token."""


def state_folder() -> str:
    """The user's state folder: the same path as `cloudtrain.storage.state_home` returns."""
    given, xdg = os.environ.get("CLOUDTRAIN_HOME"), os.environ.get("XDG_STATE_HOME", "")
    folder = f"{xdg}/cloudtrain" if os.path.isabs(xdg) else "~/.local/state/cloudtrain"
    return os.path.abspath(os.path.expanduser(given or folder))


def free_space(folder: str) -> int:
    """The free bytes of the disk on which ``folder`` is, or would be."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


class Connection:
    """This host's end of the connection. A timer sends heartbeats, and detects silence of the other side."""

    def __init__(self) -> None:
        self.input = Input()
        self.timeout = 30.0
        self._is_sending = False
        self._heard = self._looked = time.monotonic()
        self._waiting = 0
        self._next_beat = 0.0
        signal.signal(signal.SIGALRM, lambda _number, _frame: self._look())
        signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)

    def receive(self) -> Message | None:
        return self.input.wait()

    def send(self, frames: bytes) -> None:
        """Send frames. Does nothing if the connection has ended."""
        self._is_sending = True
        with contextlib.suppress(OSError):
            write_all(1, frames)
        self._is_sending = False

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked > PAUSED_SECONDS:
            self._heard += now - self._looked
        self._looked = now
        waiting = self._unread()
        if (
            self.input.heard > self._heard or waiting > self._waiting
        ):  # bytes that were already waiting are not a sign of life
            self._heard = now
        self._waiting = waiting
        if now - self._heard > self.timeout:
            self._cut()
        elif now >= self._next_beat and not self._is_sending:
            self._next_beat = now + BEAT_SECONDS
            # a full pipe must not block this process
            if select.select([], [1], [], 0)[1]:
                self.send(Beat().frames(0))

    def _unread(self) -> int:
        """The number of unread bytes of the input, which stay unread while a write blocks."""
        try:
            return unread(0)
        except OSError:  # not a pipe or a socket
            return int(bool(select.select([0], [], [], 0)[0]))

    def _cut(self) -> None:
        """From now on, reads return the end of the input, and writes are discarded, even one that is blocked."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(null, descriptor)
        self.input.has_ended = True


class RemoteHost:
    """One host of a job, until the supervisor has received all of its files."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._archive = ""
        """The path of the bundled runtime."""
        self._base = ""

    def run(self) -> int:
        try:
            return self._serve()
        except FolderIsOpen as error:
            self._refuse(f"{error}; they could run code as you. {error.hint}")
        except OSError as error:
            self._refuse(f"{error.strerror or error}: {error.filename or 'the connection'}")
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")
        finally:
            self._remove_base()
        return 1

    def _refuse(self, why: str) -> None:
        self._connection.send(Refused(why, "").frames(0))

    def _serve(self) -> int:
        inquiry = self._connection.receive()
        if not isinstance(inquiry, Inquiry):
            return 1
        self._connection.timeout = inquiry.timeout
        home = state_folder()
        self._archive = f"{home}/runtime/{inquiry.runtime}/cloudtrain.pyz"
        self._connection.send(self._facts(inquiry, home).frames(0))
        with contextlib.ExitStack() as stack:
            file: BinaryIO | None = None
            while message := self._connection.receive():
                if isinstance(message, Data):
                    if file:
                        file.write(message.content)
                    continue
                stack.close()
                if isinstance(message, Runtime):
                    file = stack.enter_context(self._runtime())
                elif isinstance(message, Folder):
                    self._make_base(message)
                elif isinstance(message, File):
                    file = stack.enter_context(self._create(message))
                elif isinstance(message, NodeJob):
                    return self._run_node(message)
                else:  # cancelled before the start
                    return 0
        return 0

    def _facts(self, inquiry: Inquiry, home: str) -> Facts:
        token = ""
        if inquiry.folder:
            with contextlib.suppress(OSError):
                token = _read(f"{inquiry.folder}/{inquiry.token_file}", TOKEN)
        unwritable = ""
        try:
            own_folder(home, create=True)
            unwritable = "" if os.access(home, os.W_OK) else "Permission denied"
        except OSError as error:
            unwritable = error.strerror or str(error)
        return Facts(
            python=list(sys.version_info[:3]),
            executable=sys.executable,
            time=time.time(),
            addresses=own_addresses(),
            leader=resolve(inquiry.leader) if inquiry.leader else [],
            client=os.environ.get("SSH_CONNECTION", "").partition(" ")[0],
            home=home,
            unwritable=unwritable,
            free=free_space(inquiry.folder if token else home),
            has_runtime=os.path.isfile(self._archive) and _sha256(self._archive) == inquiry.runtime,
            token=token,
            fingerprints={path: fingerprint(path) for path in inquiry.paths},
            missing=_missing(inquiry.modules),
            gpus=gpu_models() if inquiry.gpus else [],
        )

    # -- files

    @contextlib.contextmanager
    def _runtime(self) -> Any:
        """Open the archive of the bundled runtime, which appears only when it is complete."""
        own_folder(os.path.dirname(self._archive), create=True)
        fresh = f"{self._archive}.{os.urandom(6).hex()}"  # hosts may share a home folder
        try:
            with open(fresh, "wb") as file:
                yield file
            if _sha256(fresh) == os.path.basename(os.path.dirname(self._archive)):
                os.replace(fresh, self._archive)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)

    def _make_base(self, folder: Folder) -> None:
        """Create the host's own folder, and remove one that exists."""
        base = f"{folder.parent or state_folder() + '/jobs'}/{folder.base}"
        own_folder(os.path.dirname(base), create=True)
        shutil.rmtree(base, ignore_errors=True)
        os.mkdir(base, 0o700)
        self._base = base

    def _create(self, file: File) -> BinaryIO:
        path = f"{self._base}/{file.path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.mode), "wb")

    def _remove_base(self) -> None:
        if self._base:
            shutil.rmtree(self._base, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self._base))

    # -- the runtime

    def _run_node(self, job: NodeJob) -> int:
        own_folder(os.path.dirname(self._archive))
        if _sha256(self._archive) != os.path.basename(os.path.dirname(self._archive)):
            raise OSError(0, "it was altered", self._archive)
        sys.path.insert(0, self._archive)
        from cloudtrain.runtime.zipapp_main import unpack

        sys.path[0] = library = unpack(self._archive, os.path.dirname(os.path.dirname(self._archive)))
        from cloudtrain.runtime.start.node import run_in_sent_folder

        cache = f"{state_folder()}/environments"
        run_in_sent_folder(job, self._base, library, cache, self._connection.input, self._connection.send)
        message = self._connection.receive()
        while message and not isinstance(message, Release):  # a late signal
            message = self._connection.receive()
        return 0


def _read(path: str, size: int) -> str:
    """The beginning of a regular file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(size).decode("ascii", "replace")


def _missing(modules: list[str]) -> list[str]:
    """The ``modules`` that are not installed for this interpreter."""
    import site
    from importlib.machinery import PathFinder

    places = [*sys.path, site.getusersitepackages()]  # -I omits it, but the script has it
    return [name for name in modules if not (name in sys.modules or PathFinder.find_spec(name, places))]


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def main() -> int:
    return RemoteHost(Connection()).run()
