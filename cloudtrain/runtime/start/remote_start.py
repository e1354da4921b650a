"""Starts the runtime on a host at the other end of a connection, on which nothing of cloudtrain is installed.

A supervisor runs a Python of the host through ssh, and sends it the sources of `routes`, `_system.owned` and of this
module, which it executes in one namespace. Then both sides exchange frames over standard input and output. First the
host describes itself; it then receives the bundled runtime, unless it has it, and the files of the job; it runs the
runtime, and sends back its output, its events, its report and its outputs.

The end of the connection, or its silence, ends the runtime and its ranks. So does the end of this process: the
runtime's standard input is a pipe from it.

A frame is a letter, the length of its content, and the content. See `ASK` and the others.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import queue
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from urllib.parse import quote

NO_WAIT: int = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Windows has no such flags."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from cloudtrain._system.owned import FolderIsOpen, own_folder
    from cloudtrain.runtime.routes import interface_to, own_addresses, resolve

MARK = b"\n\x00cloudtrain-1\n"
"""Precedes the first frame of a host: login scripts may print anything before."""
HEADER = struct.Struct(">cI")
LARGEST_FRAME = 1 << 20
"""Bytes of a frame's content."""

# both ways
BEAT, FILE, DATA, LEADER = b"B", b"F", b"D", b"L"
# to the host
ASK, RUNTIME, START, SIGNAL, END = b"A", b"R", b"S", b"K", b"Q"
# from the host
HELLO, OUTPUT, EVENTS, REPORT, WARNING, ERROR, EXIT = b"H", b"O", b"V", b"P", b"W", b"E", b"X"

BEAT_SECONDS = 3.0
PAUSED_SECONDS = 5.0
"""A gap this long between two looks means that this process itself was paused."""
ENDING_SECONDS = 10.0
"""How long the runtime may take to end its ranks after the connection is gone."""
POLL_SECONDS = 0.03
REPORTS = 1 << 20
ENTRIES = 200
"""How many entries of a folder `fingerprint` compares."""


def fingerprint(path: str) -> str:
    """A digest that is equal on two machines that see the same file or folder at ``path``; empty without one."""
    try:
        entries = [(name, os.stat(f"{path}/{name}")) for name in sorted(os.listdir(path))[:ENTRIES]]
    except NotADirectoryError:
        entries = [("", os.stat(path))]
    except OSError:
        return ""
    entries_seen = [(name, status.st_size, status.st_mtime_ns) for name, status in entries]
    return hashlib.sha256(repr(entries_seen).encode()).hexdigest()


def open_file(path: str) -> BinaryIO:
    """Open a file that a script may have replaced. Raises OSError for links and anything but a regular file."""
    descriptor = os.open(path, os.O_RDONLY | NO_WAIT)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def state_folder() -> str:
    """The user's state folder, as `cloudtrain.storage.state_home` names it."""
    given, xdg = os.environ.get("CLOUDTRAIN_HOME"), os.environ.get("XDG_STATE_HOME", "")
    folder = f"{xdg}/cloudtrain" if os.path.isabs(xdg) else "~/.local/state/cloudtrain"
    return os.path.abspath(os.path.expanduser(given or folder))


def free_space(folder: str) -> int:
    """The free bytes of the disk that has ``folder``, or would have it."""
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free


class RemoteStart:
    """This host's end of the connection."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source = source
        self._target = target
        self._sending = threading.Lock()
        self._frames: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
        self._heard = time.monotonic()
        self._timeout = 30.0
        self._runtime: subprocess.Popen[bytes] | None = None
        self._base = ""
        self._removed: list[str] = []
        """The folders to remove at the end."""
        self._ending = threading.Lock()
        self._number = os.urandom(6).hex()
        """Of this process among those of all hosts, which may share a home folder."""

    def run(self) -> int:
        self._target.write(MARK)
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            return self._serve()
        except FolderIsOpen as error:
            self._send(ERROR, f"{error}; they could run code as you. {error.hint}".encode())
        except OSError as error:
            self._send(ERROR, f"{error.strerror or error}: {error.filename or 'the connection'}".encode())
        except Exception as error:  # the daemon threads do not let the interpreter end
            self._send(ERROR, f"{type(error).__name__}: {error}".encode())
        finally:
            self._clean_up()
        return 1

    def _serve(self) -> int:
        kind, content = self._frames.get()
        if kind != ASK:
            return 1
        question = json.loads(content)
        self._timeout = question["timeout"]
        self._send(HELLO, json.dumps(self._hello(question)).encode())
        archive = question["runtime"] and f"{state_folder()}/runtime/{question['runtime']}/cloudtrain.pyz"
        file: BinaryIO | None = None
        while True:
            kind, content = self._frames.get()
            if kind == RUNTIME:
                self._write_runtime(archive, content)
            elif kind == FILE:
                if file:
                    file.close()
                file = self._create(json.loads(content))
            elif kind == DATA and file:
                file.write(content)
            elif kind == START:
                if file:
                    file.close()
                return self._start(json.loads(content), archive)
            elif kind in (END, SIGNAL):  # a signal before the start cancels it
                return 0

    def _hello(self, question: dict[str, Any]) -> dict[str, Any]:
        home = state_folder()
        archive = f"{home}/runtime/{question['runtime']}/cloudtrain.pyz"
        folder, token = question["folder"], ""
        if folder:
            with contextlib.suppress(OSError), open_file(f"{folder}/{question['token_file']}") as file:
                token = file.read(100).decode("ascii", "replace")
        try:
            own_folder(home, create=True)
            unwritable = "" if os.access(home, os.W_OK) else "Permission denied"
        except OSError as error:
            unwritable = error.strerror or str(error)
        return {
            "python": list(sys.version_info[:3]),
            "executable": sys.executable,
            "time": time.time(),
            "addresses": own_addresses(),
            "leader": resolve(question["leader"]) if question["leader"] else [],
            "client": os.environ.get("SSH_CONNECTION", "").partition(" ")[0],
            "home": home,
            "unwritable": unwritable,
            "free": free_space(folder if token else home),
            "has_runtime": os.path.isfile(archive) and _sha256(archive) == question["runtime"],
            "token": token,
            "fingerprints": {path: fingerprint(path) for path in question["paths"]},
            "missing": _missing(question["modules"]),
        }

    # -- files

    def _write_runtime(self, archive: str, content: bytes) -> None:
        """A part of the bundled runtime; an empty one is its end."""
        fresh = f"{archive}.{self._number}"
        if content:
            own_folder(os.path.dirname(archive), create=True)
            with open(fresh, "ab") as file:
                file.write(content)
        else:
            os.replace(fresh, archive)

    def _create(self, entry: dict[str, Any]) -> BinaryIO:
        """A file of the job. ``base`` is sent with the first one."""
        if not self._base:
            self._base = self._make_base(entry["base"], entry["parent"])
        path = f"{self._base}/{entry['path']}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, entry["mode"])
        return open(descriptor, "wb")

    def _make_base(self, base: str, parent: str) -> str:
        """The host's own folder, empty: ``base`` below ``parent``, by default below the user's state folder."""
        base = f"{parent or state_folder() + '/jobs'}/{base}"
        own_folder(os.path.dirname(base), create=True)
        shutil.rmtree(base, ignore_errors=True)
        os.mkdir(base, 0o700)
        self._removed.append(base)
        return base

    # -- the runtime

    def _start(self, start: dict[str, Any], archive: str) -> int:
        own_folder(os.path.dirname(archive))
        if _sha256(archive) != os.path.basename(os.path.dirname(archive)):
            raise OSError(0, "it was altered", archive)
        sys.path.insert(0, archive)
        from cloudtrain.runtime.descendants import adopt_orphans, end_descendants
        from cloudtrain.runtime.zipapp_main import unpack

        library = unpack(archive, os.path.dirname(os.path.dirname(archive)))
        adopt_orphans()
        self._set_interface(start["address"])
        environ = {
            **os.environ,
            **start["environ"],
            "SAGEMAKER_BASE_DIR": self._base,
            "CLOUDTRAIN_RENDEZVOUS": f"{self._base}/leader",
            "CLOUDTRAIN_REQUIREMENTS_CACHE": f"{state_folder()}/environments",
            "CLOUDTRAIN_DIE_WITH_PARENT": "stdin",
        }
        for name in start["in_base"]:
            environ[name] = environ[name].replace("{base}", quote(self._base))
        rest = environ.get("PYTHONPATH")
        environ["PYTHONPATH"] = os.pathsep.join([library, rest] if rest else [library])
        self._runtime = subprocess.Popen(
            [sys.executable, "-m", "cloudtrain.runtime"],
            env=environ,
            cwd=library,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        reading = threading.Thread(target=self._forward_output, args=(self._runtime,), daemon=True)
        reading.start()
        events = _Growing(f"{self._base}/{start['events']}")
        leader = f"{self._base}/leader" if start["leads"] else ""
        while self._runtime.poll() is None:
            leader = self._announce(leader)
            self._send_parts(EVENTS, events)
            with contextlib.suppress(queue.Empty):
                kind, content = self._frames.get(timeout=POLL_SECONDS)
                if kind == LEADER:
                    self._write_leader(content)
                elif kind == SIGNAL:
                    self._signal(content.decode())
        code = self._runtime.returncode
        end_descendants()
        reading.join(ENDING_SECONDS)
        self._send_parts(EVENTS, events)
        with contextlib.suppress(OSError), open_file(f"{self._base}/{start['report']}") as file:
            self._send(REPORT, file.read(REPORTS))
        for folder in start["outputs"] if code in start["ended"] or start["leads"] else ():
            self._send_outputs(folder)
        self._send_outputs(start["logs"])
        self._send(EXIT, str(code).encode())
        while True:  # until the other side has everything
            kind, _ = self._frames.get()
            if kind == END:
                return 0

    def _set_interface(self, address: str) -> None:
        path = f"{self._base}/input/config/resourceconfig.json"
        with open(path) as file:
            document = json.load(file)
        document["network_interface_name"] = interface_to(address) if address else "lo"
        with open(path, "w") as file:
            json.dump(document, file)

    def _announce(self, leader: str) -> str:
        """Send the leader's address once it is known. Returns the file to look at later, if any."""
        if leader:
            with contextlib.suppress(OSError), open_file(leader) as file:
                self._send(LEADER, file.read(1000))
                return ""
        return leader

    def _write_leader(self, content: bytes) -> None:
        fresh = f"{self._base}/leader.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(fresh, f"{self._base}/leader")

    def _signal(self, name: str) -> None:
        number = getattr(signal, name, None)
        if self._runtime and number is not None:
            with contextlib.suppress(ProcessLookupError):
                self._runtime.send_signal(number)

    def _forward_output(self, runtime: subprocess.Popen[bytes]) -> None:
        assert runtime.stdout
        descriptor = runtime.stdout.fileno()
        for data in iter(lambda: os.read(descriptor, 1 << 16), b""):
            self._send(OUTPUT, data)

    # -- what goes back

    def _send_parts(self, kind: bytes, growing: _Growing) -> None:
        for part in growing.new():
            self._send(kind, part)

    def _send_outputs(self, folder: str) -> None:
        """Every file below ``folder``. A link to a file of this host's folder becomes that file."""
        base = os.path.realpath(self._base)
        for parent, _, names in os.walk(f"{self._base}/{folder}"):
            for name in sorted(names):
                path = os.path.join(parent, name)
                key, real = os.path.relpath(path, self._base), os.path.realpath(path)
                try:
                    if not real.startswith(f"{base}/"):
                        raise OSError(errno.ELOOP, "it leads out of the folder", path)
                    file = open_file(real)
                except OSError:
                    self._send(WARNING, f"{key} is not a regular file: it was left on the host".encode())
                    continue
                self._send_file(key, file)

    def _send_file(self, key: str, file: BinaryIO) -> None:
        with file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            self._send(FILE, json.dumps({"path": key, "mode": mode}).encode())
            for data in iter(lambda: file.read(LARGEST_FRAME), b""):
                self._send(DATA, data)

    # -- the connection

    def _send(self, kind: bytes, content: bytes = b"") -> None:
        with self._sending:
            self._target.write(HEADER.pack(kind, len(content)) + content)
            self._target.flush()

    def _read(self) -> None:
        """Read frames until the connection ends. Runs in a thread."""
        with contextlib.suppress(OSError, ValueError):
            while True:
                header = self._source.read(HEADER.size)
                if len(header) < HEADER.size:
                    break
                kind, size = HEADER.unpack(header)
                content = self._source.read(size)
                if len(content) < size:
                    break
                self._heard = time.monotonic()
                if kind != BEAT:
                    self._frames.put((kind, content))
        self._end("the connection has ended")

    def _watch(self) -> None:
        """Beat, and end everything if the other side is silent. Runs in a thread."""
        looked = time.monotonic()
        while True:
            time.sleep(min(1.0, BEAT_SECONDS))
            now = time.monotonic()
            if now - looked > PAUSED_SECONDS:
                self._heard += now - looked
            looked = now
            if now - self._heard > self._timeout:
                self._end(f"no message for {self._timeout:g} s")
            threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """In its own thread, because a write may block."""
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError, ValueError):
                    self._target.write(HEADER.pack(BEAT, 0))
                    self._target.flush()
            finally:
                self._sending.release()

    def _end(self, why: str) -> None:
        """End this process and everything that it has started, also if its other threads hang."""
        with self._ending:
            runtime = self._runtime
            if runtime and runtime.poll() is None:
                assert runtime.stdin
                with contextlib.suppress(OSError):
                    runtime.stdin.close()  # it ends its ranks
                with contextlib.suppress(subprocess.TimeoutExpired):
                    runtime.wait(ENDING_SECONDS)
                with contextlib.suppress(ProcessLookupError):
                    runtime.kill()
            self._clean_up()
            os._exit(1)

    def _clean_up(self) -> None:
        if self._runtime:
            with contextlib.suppress(ImportError):
                from cloudtrain.runtime.descendants import end_descendants

                end_descendants()
        for folder in self._removed:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(folder))


class _Growing:
    """A file to which the runtime appends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._position = 0

    def new(self) -> Iterator[bytes]:
        """The parts that were appended since the last call."""
        try:
            with open_file(self._path) as file:
                file.seek(self._position)
                for data in iter(lambda: file.read(LARGEST_FRAME), b""):
                    self._position += len(data)
                    yield data
        except OSError:  # not there yet
            return


def _missing(modules: list[str]) -> list[str]:
    """The ``modules`` that this interpreter does not have."""
    import site
    from importlib.machinery import PathFinder

    places = [*sys.path, site.getusersitepackages()]  # -I leaves it out, and the script has it
    return [name for name in modules if not (name in sys.modules or PathFinder.find_spec(name, places))]


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


if __name__ == "__main__":
    os._exit(RemoteStart(sys.stdin.buffer, sys.stdout.buffer).run())
