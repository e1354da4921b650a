"""Copies the newest checkpoints in the memory of this host to the memory of another host of the job.

Each runtime has one connection to its `holder_of`, on which it sends every new copy, and one from each host that it
holds copies of. Both ends prove that they are runtimes of this attempt, with a key derived from the job secret.
Connections between machines are encrypted.

    owner → holder   {"host", "generation"}
                     {"committed": what `all_committed` returns}
                     {"put": uri and rank, "header": bytes, "data": bytes}, the header, the data
                     {"beat"}, every second
                     {"done"}, when the owner has committed its copies or needs no commit
    holder → owner   {"ok": whether it keeps the copy}

At the beginning of an attempt, an owner first gets the copies that it lacks. On another connection, it sends the steps
that it has, by URI and rank, and the holder then sends messages as above:

    owner → holder   {"host", "generation", "have", "committed"}
    holder → owner   {"damaged": the problem of a copy that it held}

A copy is valid once it has a header, which is written after all hashes in it were compared. If the connection of an
owner ends without ``done``, its host is lost, and the holder commits its newest copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain._system.files import lock, open_regular
from cloudtrain._system.patterns import pattern
from cloudtrain._system.sockets import create_server
from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.memory.committed import SUFFIX, all_committed, replace_all
from cloudtrain.checkpoint.memory.files import (
    data_path,
    header_path,
    read_data,
    read_headers,
    remove_header,
    saver_of,
    space_in,
    write_whole,
)
from cloudtrain.checkpoint.memory.header import LARGEST_HEADER, Header
from cloudtrain.errors import CloudtrainError
from cloudtrain.link.authentication import BACKLOG, Admitted, Gate
from cloudtrain.link.handshake import ENCRYPTED, is_loopback, prove
from cloudtrain.link.tls import make_certificate, server_context, wrap_client

PURPOSE = "copies"
"""The purpose of the key, and of a connection."""
CHUNK = 1 << 20
LOOK_SECONDS = 0.1
PAUSE_SECONDS = 1.0
"""Seconds before another attempt to connect."""
BEAT_SECONDS = 1.0
"""Seconds between two heartbeats of an owner."""
LOST_SECONDS = 4.0
"""At the end, an owner that has been silent for longer than this is lost."""
SILENT_SECONDS = 10.0
"""A connection is closed after this time without a byte."""
END_SECONDS = 30.0
"""How long a holder waits at the end for owners that are still committing their copies."""
_NAME = pattern(r"[0-9a-f]{16}-\d{1,9}")
_HELD = "held-"
_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, CloudtrainError)

Message = dict[str, Any]


def holder_of(host: str, hosts: Sequence[str]) -> str:
    """The host that holds the copies of ``host``. It is half of the hosts away, because neighbours may fail together.

    >>> [holder_of(host, "abcd") for host in "abcd"]
    ['c', 'd', 'a', 'b']
    """
    return hosts[(hosts.index(host) + max(len(hosts) // 2, 1)) % len(hosts)]


def held_folders(folder: Path) -> dict[str, Path]:
    """The folders with the copies of other hosts in the memory folder of this host, by host."""
    return {path.name[len(_HELD) :]: path for path in sorted(folder.glob(f"{_HELD}*")) if path.is_dir()}


class CheckpointCopies:
    """The copies that this host sends and holds.

    Args:
        folder: the memory folder of this host.
        keys: the job's keys for ``copies`` and ``tls``.
        on_machine: whether all hosts of the job are on this machine.
    """

    def __init__(
        self, folder: Path, host: str, hosts: Sequence[str], keys: Mapping[str, bytes], *, on_machine: bool
    ) -> None:
        self._folder, self._host, self._hosts, self._keys = folder, host, hosts, keys
        self._on_machine = on_machine
        self._listener = create_server("127.0.0.1" if on_machine else "", 0, BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._generation = ""
        self._closing = threading.Event()
        self._is_done = threading.Event()
        """Set when the copies of this host need no commit by its holder."""
        self._sender: threading.Thread | None = None
        self._owners: dict[str, Owner] = {}
        self._sent: dict[str, tuple[int, int]] = {}
        self._address = ("", 0)
        """The address of the holder; port 0 if there is no holder."""
        self._holder = ""
        self.may_get = False
        """Whether the holder has copies of this host from an earlier attempt."""

    @property
    def offer(self) -> Message:
        """The message to the other hosts with this one's port, and whose copies it has from earlier attempts."""
        return {"port": self.port, "held": [*held_folders(self._folder)]}

    def serve(self, offers: Mapping[str, Message], generation: str) -> None:
        """Begin to hold copies, and to send those that hosts request.

        Args:
            offers: the offers of the hosts that hold copies.
            generation: the identity of the attempt. Processes of other attempts are refused.
        """
        self._generation = generation
        threading.Thread(target=self._serve, name="copies-held", daemon=True).start()
        self._holder = holder_of(self._host, self._hosts)
        if self._holder in offers:
            offer = offers[self._holder]
            self._address = ("127.0.0.1" if self._on_machine else self._holder, int(offer["port"]))
            self.may_get = self._host in offer["held"]

    def get(self) -> Iterator[str]:
        """Get the copies that are newer than those of this host, before its ranks start. Yields the problems."""
        if not self.may_get:
            return
        have: dict[str, int] = {}
        damaged: list[tuple[Path, str]] = []
        for path, header in read_headers(self._folder, damaged):
            try:
                verify(path, header)
            except Damaged as error:
                remove_header(path)
                yield f"the copy of step {header.step} in the memory of this host is damaged: {error.message}"
            else:
                name = saver_of(path)
                have[name] = max(header.step, have.get(name, -1))
        for path, problem in damaged:
            remove_header(path)
            yield f"a copy in the memory of this host is damaged: {problem}"
        try:
            with self._connect(self._address) as connection:
                committed = all_committed(self._folder)
                hello = {"host": self._host, "generation": self._generation}
                _write(connection, {**hello, "have": have, "committed": committed})
                owner = Owner(self._folder, self._folder)
                owner.receive(connection)
        except _ERRORS as error:
            yield f"the copies of this host in the memory of {self._holder} cannot be read: {error!r}"
            return
        for problem in owner.problems:
            yield f"a copy in the memory of {self._holder} is damaged: {problem}"

    def start(self) -> None:
        """Begin to send copies."""
        if self._address[1]:
            self._sender = threading.Thread(target=self._send, name="copies", daemon=True)
            self._sender.start()

    def done(self) -> None:
        """Report to the holder that the copies of this host need no commit."""
        self._is_done.set()
        if self._sender:
            self._sender.join(SILENT_SECONDS)

    def lost_owners(self, seconds: float = END_SECONDS) -> Iterator[tuple[str, Path]]:
        """The hosts whose runtimes have ended without `done`, and the folders with their copies."""
        folders, end = held_folders(self._folder), time.monotonic() + seconds
        for host, owner in list(self._owners.items()):
            if host not in folders or not any(folders[host].glob("*.json")):
                continue
            while (
                owner.is_connected
                and not owner.is_done
                and time.monotonic() < min(end, owner.heard + LOST_SECONDS)
            ):
                time.sleep(LOOK_SECONDS)
            if not owner.is_done:
                yield host, folders[host]

    def close(self) -> None:
        """Stop receiving copies. Existing ones stay."""
        self._closing.set()

    # -- sending

    def _send(self) -> None:
        while not self._closing.is_set() and not self._is_done.is_set():
            with contextlib.suppress(*_ERRORS), self._connect(self._address) as connection:
                self._sent.clear()
                _write(connection, {"host": self._host, "generation": self._generation})
                self._send_all(connection)
                return
            self._is_done.wait(PAUSE_SECONDS)

    def _send_all(self, connection: socket.socket) -> None:
        pause, known, beaten = LOOK_SECONDS, None, 0.0
        while not self._is_done.wait(pause):
            pause, found = LOOK_SECONDS, _headers_in(self._folder)
            if found != known:
                began, known = time.monotonic(), found
                if any(name.endswith(".json") for name, *_ in found):  # otherwise, the folder was emptied
                    _write(connection, {"committed": all_committed(self._folder)})
                for path, header in self._newest():
                    if not self._put(connection, path, header):
                        known = None
                pause += time.monotonic() - began  # leave the network free for half of the time
            _check_open(connection)
            if time.monotonic() > beaten + BEAT_SECONDS:
                beaten = time.monotonic()
                _write(connection, {"beat": True})
        _write(connection, {"done": True})

    def _newest(self) -> list[tuple[Path, Header]]:
        """The newest copy of each rank and URI, unless it has been sent."""
        return [
            (path, header)
            for name, (path, header) in newest_in(self._folder).items()
            if self._sent.get(name) != (header.step, header.attempt)
        ]

    def _put(self, connection: socket.socket, path: Path, header: Header) -> bool:
        """Send a copy. Returns False if it is being replaced."""
        name = saver_of(path)
        document = header.to_bytes()
        try:
            with read_data(path) as data:
                size = min(header.nbytes, data.nbytes)
                _write(connection, {"put": name, "header": len(document), "data": size})
                connection.sendall(document)
                for begin in range(0, size, CHUNK):
                    connection.sendall(data[begin : min(begin + CHUNK, size)])
        except Damaged:
            return False
        _read(connection)
        self._sent[name] = (header.step, header.attempt)
        return True

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        connection = socket.create_connection(address, timeout=SILENT_SECONDS)
        try:
            encrypted = not is_loopback(connection.getpeername()[0])
            purpose = PURPOSE + ENCRYPTED * encrypted
            prove(connection, self._keys[PURPOSE], purpose, time.monotonic() + SILENT_SECONDS)
            connection.settimeout(SILENT_SECONDS)
            if encrypted:
                return wrap_client(connection, make_certificate(self._keys["tls"]).der)
            return connection
        except BaseException:
            connection.close()
            raise

    # -- holding

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        gate = Gate(self._listener, {PURPOSE: self._keys[PURPOSE]}, selector)
        context = None if self._on_machine else server_context(self._keys["tls"])
        while not self._closing.is_set():
            events = selector.select(0.2)
            for admitted in gate.admit(key.fileobj for key, _ in events if key.data is gate):
                threading.Thread(target=self._admit, args=(admitted, context), daemon=True).start()
        gate.close()
        selector.close()

    def _admit(self, admitted: Admitted, context: ssl.SSLContext | None) -> None:
        connection = admitted.socket
        try:
            connection.settimeout(SILENT_SECONDS)
            if context:
                if not admitted.encrypted and not is_loopback(connection.getpeername()[0]):
                    return
                if admitted.encrypted:
                    connection = context.wrap_socket(connection, server_side=True)
            hello = _read(connection)
            host = hello["host"]
            if hello["generation"] != self._generation or host not in self._hosts or host == self._host:
                return
            folder = self._folder / f"{_HELD}{host}"
            if "have" in hello:
                damaged: list[tuple[Path, str]] = []
                if folder.is_dir():
                    later = hello["committed"]
                    for name, step in all_committed(folder).items():
                        later[name] = max(step, later.get(name, -1))
                    _write(connection, {"committed": later})
                for name, (path, header) in newest_in(folder, damaged).items() if folder.is_dir() else ():
                    if header.step > hello["have"].get(name, -1):
                        self._put(connection, path, header)
                for path, problem in damaged:
                    remove_header(path)
                    _write(connection, {"damaged": problem})
                _write(connection, {"done": True})
                return
            owner = Owner(folder, self._folder)
            before, self._owners[host] = self._owners.get(host), owner
            if before:
                before.replaced.set()
            owner.receive(connection)
        except _ERRORS:
            pass
        finally:
            connection.close()


def _headers_in(folder: Path) -> list[tuple[str, int, int]]:
    """The headers in a folder, as a list that changes with each new header and each commit. Raises OSError."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith((".json", SUFFIX))]
    return sorted((name, status.st_ino, status.st_mtime_ns) for name, status in found)


def newest_in(folder: Path, damaged: list[tuple[Path, str]] | None = None) -> dict[str, tuple[Path, Header]]:
    """The newest copy of each URI and rank in a folder: its path without the suffix, and its header.

    Args:
        damaged: see `read_headers`.
    """
    found: dict[str, tuple[Path, Header]] = {}
    for path, header in read_headers(folder, damaged):
        name = saver_of(path)
        if name not in found or found[name][1].step < header.step:
            found[name] = (path, header)
    return found


class Owner:
    """A host whose copies are held here, in ``folder``; ``root`` is the memory folder of this host."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder, self._root = folder, root
        self.is_connected = True
        self.is_done = False
        self.heard = time.monotonic()
        self.problems: list[str] = []
        """The problems of damaged copies."""
        self.replaced = threading.Event()
        """Set when another connection of this owner has replaced this one."""

    def receive(self, connection: socket.socket) -> None:
        """Keep the copies that arrive, until the connection ends. Raises one of `_ERRORS`."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            while not self.replaced.is_set():
                message = _read(connection)
                self.heard = time.monotonic()
                if "beat" in message:
                    continue
                if "damaged" in message:
                    self.problems.append(str(message["damaged"])[:1000])
                    continue
                if "committed" in message:
                    replace_all(
                        self._folder, {str(name): int(step) for name, step in message["committed"].items()}
                    )
                    continue
                if "done" in message:
                    self.is_done = True
                    return
                if not _NAME.fullmatch(message["put"]) or not 0 < message["header"] <= LARGEST_HEADER:
                    return
                _write(connection, {"ok": self._keep(connection, message)})
        finally:
            self.is_connected = False

    def _keep(self, connection: socket.socket, message: Message) -> bool:
        """Receive one copy. If there is no space for it, its bytes are discarded. Returns whether it was kept."""
        document = bytes(_read_bytes(connection, message["header"]))
        size: int = message["data"]
        slots = [self._folder / f"{message['put']}-{number}" for number in range(2)]
        header = Header.from_bytes(document)
        whole = {path: known.step for path, known in read_headers(self._folder) if path in slots}
        for path in [path for path, step in whole.items() if step > header.step]:
            remove_header(path)  # a later step is from before a restart at an earlier checkpoint
            del whole[path]
        path = min(slots, key=lambda slot: whole.get(slot, -1))
        remove_header(path)
        descriptor = open_regular(
            data_path(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with open(descriptor, "r+b") as file:
            has_space = lock(descriptor, wait=False) and size - os.fstat(descriptor).st_size <= space_in(
                self._root
            )
            if has_space:
                file.truncate(size)
            for begin in range(0, size, CHUNK):
                chunk = _read_bytes(connection, min(CHUNK, size - begin))
                self.heard = time.monotonic()
                if has_space:
                    try:
                        file.write(chunk)
                    except OSError:  # the memory is full
                        has_space = False
        if not has_space:
            return False
        try:
            verify(path, header)
        except Damaged as error:
            self.problems.append(error.message)
            return False
        write_whole(header_path(path), document)
        return True


def verify(path: Path, header: Header) -> None:
    """Compare the hashes of a copy. Raises Damaged."""
    with read_data(path) as data:
        for stored, file in zip(header.files, header.tensor_files(data)):
            stored.verify_digest(file.size, file.sha256.hex())


def _check_open(connection: socket.socket) -> None:
    """Raises ConnectionResetError if the other end, which sends nothing unprompted, has closed the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return
    finally:
        connection.settimeout(SILENT_SECONDS)
    raise ConnectionResetError("the holder has closed the connection")


def _write(connection: socket.socket, message: Message) -> None:
    document = json.dumps(message).encode()
    connection.sendall(struct.pack(">I", len(document)) + document)


def _read(connection: socket.socket) -> Message:
    [size] = struct.unpack(">I", _read_bytes(connection, 4))
    if size > CHUNK:
        raise ValueError("a message is too long")
    message = json.loads(bytes(_read_bytes(connection, size)))
    if not isinstance(message, dict):
        raise ValueError("a message is not an object")
    return message


def _read_bytes(connection: socket.socket, size: int) -> bytearray:
    """Raises ConnectionResetError at the end of the connection."""
    found = bytearray(size)
    view, begin = memoryview(found), 0
    while begin < size:
        count = connection.recv_into(view[begin:])
        if not count:
            raise ConnectionResetError("the other end has closed the connection")
        begin += count
    return found
