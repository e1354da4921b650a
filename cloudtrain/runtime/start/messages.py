"""The messages between the leading process and the programs on the hosts, over srun, ssh or another carrier.

To a host, each message is a line of JSON. From the hosts, all output may arrive in one stream, in which a scheduler
keeps only short lines whole. So messages and output are sent back in frames: short lines with the number of the host.
Other lines are passed on unchanged: those of ranks, of a scheduler, of a login script, or of an interpreter that did
not start. The bytes of a `Content` follow its line or frame, and only a carrier to a single host keeps them together.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, field, fields, replace
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import parse_json

OUTPUT, MESSAGE = b"o", b"m"
"""A line of output, and a message. If one needs several frames, all but the last have the capital letter."""
LONGEST = 900
"""The most bytes of a frame's content. Slurm keeps lines of up to 1,024 bytes whole."""
LARGEST_CONTENT = 1 << 20
LONGEST_LINE = 1 << 22
"""Bytes after which an unfinished line is passed on anyway."""
MOST_UNFINISHED = 1 << 26
"""The most bytes of unfinished frames of all hosts together. Further ones are passed on as output."""
ENTRY_SIZE = 200
"""Bytes that the record of an unfinished frame takes in addition to its content."""
READ_SIZE = 1 << 16
ENTRIES = 200
"""The most entries of a folder that `fingerprint` compares."""

_MEMORY_KILL = re.compile(
    rb"^(?:slurmstepd|srun)\S* error: .*?(?:oom[-_ ]kill event|Out Of Memory|exceeded (?:job |step )?memory limit)",
    re.I,
)
_CANCEL = re.compile(rb"error: \*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*$")
"""The line for a step of Slurm that someone has cancelled. With a cause such as a time limit, the line ends with it."""
_LOST_NODE = re.compile(rb"^srun: error: Node failure on (\S+)")
"""The line for nodes that Slurm has marked as down: it takes them out of the job, and kills the program there."""
_FRAME = re.compile(rb"\x02(\d{1,9})([omOM])(.*)\n", re.DOTALL)


@dataclass(frozen=True)
class Message:
    """A message of one of the classes below."""

    def to_line(self) -> bytes:
        return json.dumps({"type": type(self).__name__, **asdict(self)}).encode() + b"\n"

    def frames(self, host: int) -> bytes:
        return b"".join(_frames(host, MESSAGE, self.to_line()[:-1]))

    @staticmethod
    def from_line(line: bytes) -> Message:
        """The message in a line, without the bytes that follow. Raises ValueError for anything else."""
        given = parse_json(line)
        if not isinstance(given, dict):
            raise ValueError("a message is an object")
        kind = _TYPES.get(str(given.pop("type", "")))
        wanted = {one.name: str(one.type) for one in fields(kind) if one.type != "bytes"} if kind else {}
        if (
            kind is None
            or wanted.keys() != given.keys()
            or not all(_fits(given[name], wanted[name]) for name in wanted)
        ):
            raise ValueError("no message has such fields")
        return kind(**given)


def _fits(value: object, kind: str) -> bool:
    """Whether a value, and its items or values, have the types in an annotation."""
    name, _, inner = kind.partition("[")
    of = inner[:-1].split(", ")[-1]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return type(value).__name__ == name and (
        of in ("", "Any") or all(type(item).__name__ == of for item in items)
    )


@dataclass(frozen=True)
class Content(Message):
    """A message that is followed by at most `LARGEST_CONTENT` bytes."""

    size: int
    content: bytes = b""

    @classmethod
    def of(cls, content: bytes) -> Content:
        return cls(len(content), content)

    def to_line(self) -> bytes:
        return json.dumps({"type": type(self).__name__, "size": self.size}).encode() + b"\n" + self.content

    def frames(self, host: int) -> bytes:
        line = replace(self, content=b"").to_line()[:-1]
        return b"".join(_frames(host, MESSAGE, line)) + self.content


@dataclass(frozen=True)
class Beat(Message):
    """Shows that the other side is alive."""


@dataclass(frozen=True)
class Inquiry(Message):
    """The first message to a host that is reached through ssh. The host answers with `Facts`."""

    leader: str = ""
    """The name of the first host, to be resolved; empty for none."""
    runtime: str = ""
    """The SHA-256 of the bundled runtime; empty if nothing will run."""
    folder: str = ""
    """The folder that the hosts share, which contains ``token_file``; empty for none."""
    token_file: str = ""
    paths: list[str] = field(default_factory=list)
    """Paths on the machine of the leading process. The host sends its own `fingerprint` of each."""
    modules: list[str] = field(default_factory=list)
    """Modules that the script imports."""
    gpus: bool = False
    """Whether to describe the GPUs, which takes a second."""
    timeout: float = 30.0
    """The seconds of silence after which the host ends its runtime or ranks."""


@dataclass(frozen=True)
class Facts(Message):
    """A host's description of itself."""

    python: list[int] = field(default_factory=list)
    executable: str = ""
    time: float = 0.0
    addresses: list[str] = field(default_factory=list)
    leader: list[str] = field(default_factory=list)
    """The addresses to which this host resolves the name of the first host."""
    client: str = ""
    """The address from which the leading process has connected."""
    home: str = ""
    """The user's state folder."""
    unwritable: str = ""
    """Why the state folder cannot be written; empty if it can."""
    free: int = 0
    """The free bytes on the disk of the shared folder, or else of the state folder."""
    has_runtime: bool = False
    token: str = ""
    fingerprints: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """The modules that the host's interpreter does not have."""
    gpus: list[str] = field(default_factory=list)
    """The model of each GPU, if the inquiry requests them."""


def fingerprint(path: str) -> str:
    """A digest that is equal on machines with the same file or folder at ``path``; empty if there is none."""
    try:
        entries = [(name, os.stat(f"{path}/{name}")) for name in sorted(os.listdir(path))[:ENTRIES]]
    except NotADirectoryError:
        entries = [("", os.stat(path))]
    except OSError:
        return ""
    import hashlib  # few processes need it

    entries_seen = [(name, status.st_size, status.st_mtime_ns) for name, status in entries]
    return hashlib.sha256(repr(entries_seen).encode()).hexdigest()


@dataclass(frozen=True)
class Runtime(Message):
    """`Data` of the bundled runtime follow."""


@dataclass(frozen=True)
class Folder(Message):
    """Create the host's folder ``base``, below ``parent`` or the user's state folder. Its files follow."""

    base: str
    parent: str


@dataclass(frozen=True)
class File(Message):
    """`Data` of a file follow. Either side sends files."""

    path: str
    """Relative to the host's folder."""
    mode: int


@dataclass(frozen=True)
class Data(Content):
    """A part of the most recently announced file."""


@dataclass(frozen=True)
class Events(Content):
    """New events of a host."""


@dataclass(frozen=True)
class Report(Content):
    """The failure report of a host."""


@dataclass(frozen=True)
class Warn(Message):
    """A warning for the user."""

    text: str


@dataclass(frozen=True)
class Release(Message):
    """To a host: everything that it has sent has arrived, and its folder may be removed."""


@dataclass(frozen=True)
class NodeJob(Message):
    """The part of a job that every host receives."""

    names: list[str]
    """The hosts with a place, in rank order, followed by the spare hosts."""
    environment: dict[str, str] = field(default_factory=dict)
    """The job's variables, with secrets."""
    settings: dict[str, str] = field(default_factory=dict)
    """The variables of `Settings`, except those that a node determines itself."""
    interface: str = "auto"
    node_folder: str = ""
    container: dict[str, Any] = field(default_factory=dict)
    """The container as in the request; empty if there is none."""
    mounts: list[str] = field(default_factory=list)
    """The mounts that a container needs in addition to the folder of its host, in the format of `Mount.parse`."""
    shared: list[str] = field(default_factory=list)
    """The files shared by several jobs. A container gets copies of them."""
    runtime: str = ""
    """The path of the bundled runtime."""
    srun: str = ""
    """The kind of MPI with which srun starts the ranks; empty if it does not start them."""
    address: str = ""
    """An address of the first host that all others can reach; if empty, they resolve its name."""
    in_base: list[str] = field(default_factory=list)
    """The settings whose URI contains ``{base}``, to be replaced with the host's folder."""
    outputs: list[str] = field(default_factory=list)
    """The folders that a host sends back if it shares no folder with the job."""
    spares: int = 0
    """The number of spare hosts in ``names``."""


@dataclass(frozen=True)
class Leader(Message):
    """The address and port of the leader: sent by the first host, and then to all hosts."""

    address: str


@dataclass(frozen=True)
class Signal(Message):
    """To a node: a signal for its runtime. From a node: a SIGINT or SIGHUP that it received. Numbers are Linux's."""

    number: int
    host: int = -1
    """The number of the host that the signal is for; -1 for all hosts."""


@dataclass(frozen=True)
class Exit(Message):
    """The exit code of a node's runtime, negative for a signal."""

    code: int


@dataclass(frozen=True)
class Ranks(Message):
    """The ranks that a host runs in the foreground."""

    order: dict[str, Any]
    """The fields of `foreground.plan.Order`."""
    environment: dict[str, str]
    folder: str
    secret: str


@dataclass(frozen=True)
class Ready(Message):
    """A host can run its ranks. It reports its free ports by name, and its SSH_CONNECTION."""

    ports: dict[str, int]
    ssh: str


@dataclass(frozen=True)
class Refused(Message):
    """Why a host cannot run its ranks."""

    message: str
    hint: str


@dataclass(frozen=True)
class Start(Message):
    """Start the ranks of the host ``name``, at a `foreground.plan.Place`."""

    name: str
    place: dict[str, Any]


@dataclass(frozen=True)
class Failed(Message):
    """The failure report of a rank."""

    report: dict[str, Any]


@dataclass(frozen=True)
class Done(Message):
    """All ranks of a host have ended."""

    completed: list[int]
    """The ranks with exit code 0."""
    all: bool


@dataclass(frozen=True)
class Stop(Message):
    """End the ranks as if the signal with this Linux number had arrived."""

    signal: int
    reason: str


@dataclass(frozen=True)
class Notify(Message):
    """Write a notice for the ranks."""

    reason: str


@dataclass(frozen=True)
class Abort(Message):
    """Kill the ranks after their pending commits, because another rank has failed."""


@dataclass(frozen=True)
class Kill(Message):
    """Kill the ranks."""


_TYPES: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (*Message.__subclasses__(), *Content.__subclasses__())
    if kind is not Content
}


def output_frames(host: int, line: bytes) -> bytes:
    """The frames of one line of output, with or without a newline at the end."""
    return b"".join(_frames(host, OUTPUT, line.rstrip(b"\n")))


def _frames(host: int, kind: bytes, content: bytes) -> Iterator[bytes]:
    for start in range(0, max(1, len(content)), LONGEST):
        is_last = start + LONGEST >= len(content)
        part = content[start : start + LONGEST]
        yield b"\x02%d%s%s\n" % (host, kind if is_last else kind.upper(), part)


@dataclass
class FrameReader:
    """Splits the stream from the hosts into messages and output.

    Args:
        take: called with each message, and the number of its host.
        noise: lines to omit, such as messages of the scheduler that do not concern the user.
    """

    take: Callable[[int, Message], object]
    noise: tuple[bytes, ...] = ()
    memory_kills: list[str] = field(default_factory=list)
    """Lines of the scheduler about processes that were killed for their use of memory."""
    lost_nodes: list[str] = field(default_factory=list)
    """Lists of nodes that the scheduler has taken out of the job."""
    is_cancelled: bool = False
    """Whether someone has cancelled the step of the programs on the nodes."""
    has_frames: bool = False
    _rest: bytes = b""
    _parts: dict[tuple[int, bytes], bytes] = field(default_factory=dict)
    _held: int = 0
    """The size of all unfinished frames in bytes."""
    _announced: tuple[int, Content] | None = None

    def read(self, data: bytes) -> Iterator[bytes]:
        """The output in ``data`` as whole lines. Messages are taken after the output before them has been yielded."""
        data, position, output = self._rest + data, 0, b""
        while True:
            if self._announced:
                host, message = self._announced
                end = position + message.size
                if len(data) < end:
                    break
                self._announced = None
                self.take(host, replace(message, content=data[position:end]))
            else:
                end = data.find(b"\n", position) + 1
                if not end:
                    if len(data) - position > LONGEST_LINE:
                        output, position = output + data[position:], len(data)
                    break
                found = self._line(data[position:end])
                if isinstance(found, bytes):
                    output += found
                else:
                    yield output
                    output = b""
                    if isinstance(found[1], Content):
                        self._announced = found[0], found[1]
                    else:
                        self.take(*found)
            position = end
        self._rest = data[position:]
        yield output

    @property
    def unfinished(self) -> bytes:
        """The beginning of a line of output before the first frame."""
        return b"" if self.has_frames else self._rest

    def end(self) -> bytes:
        """The remaining output at the end of the stream."""
        rest = b"" if self._announced else self._rest
        left = [part for (_, kind), part in self._parts.items() if kind == OUTPUT] + [rest]
        self._parts, self._held, self._rest = {}, 0, b""
        return b"".join(part + b"\n" for part in left if part)

    def _line(self, line: bytes) -> bytes | tuple[int, Message]:
        # a login script may have printed something without an end of line before the first frame
        found = _FRAME.fullmatch(line) if self.has_frames else _FRAME.search(line)
        if not found:
            if _MEMORY_KILL.search(line):
                self.memory_kills.append(line.decode("utf-8", "replace").strip())
            if lost := _LOST_NODE.match(line):
                self.lost_nodes.append(lost[1].decode("utf-8", "replace"))
            self.is_cancelled |= bool(_CANCEL.search(line.strip()))
            return b"" if line.strip() in self.noise else line
        self.has_frames = True
        host, kind = int(found[1]), found[2].lower()
        begun = self._parts.pop((host, kind), None)
        if begun is not None:
            self._held -= len(begun) + ENTRY_SIZE
        content = (begun or b"") + found[3]
        if found[2] != kind:
            if self._held + len(content) > MOST_UNFINISHED:
                return content + b"\n"
            self._parts[host, kind] = content
            self._held += len(content) + ENTRY_SIZE
            return b""
        if kind == OUTPUT:
            return b"" if content in self.noise else content + b"\n"
        try:
            message = Message.from_line(content)
        except ValueError:
            return line
        if isinstance(message, Content) and not 0 <= message.size <= LARGEST_CONTENT:
            return line
        return host, message


class Input:
    """The messages that arrive at a host, on a descriptor."""

    def __init__(self, descriptor: int = 0) -> None:
        self.has_ended = False
        self.heard = 0.0
        """The monotonic time of the last read."""
        self._descriptor = descriptor
        self._rest = b""

    def wait(self) -> Message | None:
        """Wait for the next message; None at the end of the input. Raises ValueError for anything else."""
        while (message := self._next()) is None and not self.has_ended:
            self.fill()
        return message

    def pending(self) -> Iterator[Message]:
        """The messages that have been read already. Raises ValueError for anything else."""
        while message := self._next():
            yield message

    def fill(self) -> None:
        """Read once."""
        data = os.read(self._descriptor, READ_SIZE)
        self.heard = time.monotonic()
        self._rest += data
        self.has_ended = self.has_ended or not data

    def _next(self) -> Message | None:
        """The next message that has been read; None if there is none. Heartbeats are skipped."""
        line, end, rest = self._rest.partition(b"\n")
        if not end:
            return None
        message = Message.from_line(line)
        if isinstance(message, Content):
            if len(rest) < message.size:
                return None
            message, rest = replace(message, content=rest[: message.size]), rest[message.size :]
        self._rest = rest
        return self._next() if isinstance(message, Beat) else message
