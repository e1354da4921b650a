"""The messages between the process that leads a run and the programs on its hosts, over srun, ssh or another carrier.

To a host, each message is a line of JSON. From the hosts, the outputs of all may arrive in one stream, in which a
scheduler keeps short lines whole, and nothing else. So messages and output are sent back in frames: short lines with
the number of the host. What is not a frame is passed on unchanged: lines of ranks, of a scheduler, of a login script,
or of an interpreter that did not start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from cloudtrain.contract.documents import parse_json

OUTPUT, MESSAGE = b"o", b"m"
"""A line of output, and a message. The parts of a longer one before the last have the capital letter."""
LONGEST = 900
"""Bytes of a frame's content. Slurm keeps lines of up to 1,024 bytes whole."""

_MEMORY_KILL = re.compile(
    rb"^(?:slurmstepd|srun)\S* error: .*?(?:oom[-_ ]kill event|Out Of Memory|exceeded (?:job |step )?memory limit)",
    re.I,
)
_CANCEL = re.compile(rb"error: \*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*$")
"""A step of Slurm that someone has cancelled. With another cause, such as a time limit, the line ends with that."""
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
        """Raises ValueError if the line is not a message, or a field or its elements have another type."""
        content = parse_json(line)
        if not isinstance(content, dict):
            raise ValueError("a message is an object")
        kind = _TYPES.get(str(content.pop("type", "")))
        wanted = {one.name: str(one.type) for one in fields(kind)} if kind else {}
        is_it = wanted.keys() == content.keys() and all(_fits(content[name], wanted[name]) for name in wanted)
        if kind is None or not is_it:
            raise ValueError("no message has such fields")
        return kind(**content)


def _fits(value: Any, kind: str) -> bool:
    """Whether a value has a type such as ``int``, ``list[str]`` or ``dict[str, Any]``. The keys of JSON are texts."""
    outer, _, inner = kind.rstrip("]").partition("[")
    if type(value).__name__ != outer:
        return False
    element = inner.rpartition(", ")[2]
    elements = value.values() if isinstance(value, dict) else value
    return element in ("", "Any") or all(type(one).__name__ == element for one in elements)


@dataclass(frozen=True)
class NodeJob(Message):
    """The part of a job that the step sends to every node."""

    names: list[str]
    """The hosts, in rank order."""
    environment: dict[str, str] = field(default_factory=dict)
    """The job's variables, with secrets."""
    settings: dict[str, str] = field(default_factory=dict)
    """The variables of `Settings`, without what a node finds out itself."""
    interface: str = "auto"
    node_folder: str = ""
    container: dict[str, Any] = field(default_factory=dict)
    """As in the request; empty without one."""
    mounts: list[str] = field(default_factory=list)
    """The mounts that a container needs in addition to the folder of its host, as `container.Mount` has it."""
    shared: list[str] = field(default_factory=list)
    """The files of several jobs of which a container gets copies."""
    runtime: str = ""
    """The path of the bundled runtime."""
    srun: str = ""
    """The kind of MPI for which srun starts the ranks; empty if it does not."""


@dataclass(frozen=True)
class Leader(Message):
    """The port of the leader: from the first node, and then to all of them."""

    port: int


@dataclass(frozen=True)
class Signal(Message):
    """To a node: a signal for its runtime. From one: the SIGINT or SIGHUP that it got."""

    number: int


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
    """A host can run its ranks: its free ports, by name, and its SSH_CONNECTION."""

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
    """The report of a rank that has failed."""

    report: dict[str, Any]


@dataclass(frozen=True)
class Done(Message):
    """All ranks of a host have ended."""

    completed: list[int]
    """The ranks with exit code 0."""
    all: bool


@dataclass(frozen=True)
class Stop(Message):
    """End the ranks, as after the signal with this Linux number."""

    signal: int
    reason: str


@dataclass(frozen=True)
class Notify(Message):
    """Write a notice for the ranks."""

    reason: str


@dataclass(frozen=True)
class Abort(Message):
    """Kill the ranks after their pending commits: another one has failed."""


@dataclass(frozen=True)
class Kill(Message):
    """Kill the ranks."""


_TYPES: dict[str, type[Message]] = {kind.__name__: kind for kind in Message.__subclasses__()}


def output_frames(host: int, line: bytes) -> bytes:
    """The frames of one line of output, which may end without a newline."""
    return b"".join(_frames(host, OUTPUT, line.rstrip(b"\n")))


def _frames(host: int, kind: bytes, content: bytes) -> Iterator[bytes]:
    for start in range(0, max(1, len(content)), LONGEST):
        is_last = start + LONGEST >= len(content)
        part = content[start : start + LONGEST]
        yield b"\x02%d%s%s\n" % (host, kind if is_last else kind.upper(), part)


@dataclass
class FrameReader:
    """Takes the stream of the hosts apart.

    Args:
        take: called with each message, and the number of its host.
        noise: lines that are left out: messages of the scheduler that do not concern the user.
    """

    take: Callable[[int, Message], object]
    noise: tuple[bytes, ...] = ()
    memory_kills: list[str] = field(default_factory=list)
    """Lines of the scheduler about processes that were killed for their use of memory."""
    is_cancelled: bool = False
    """Whether someone has cancelled the step of the programs on the nodes."""
    _rest: bytes = b""
    _parts: dict[tuple[int, bytes], bytes] = field(default_factory=dict)
    _has_frames: bool = False

    def read(self, data: bytes) -> Iterator[bytes]:
        """The output in ``data``: whole lines. A message is taken after the caller has the output before it."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        output = b""
        for line in lines:
            found = self._line(line + b"\n")
            if isinstance(found, bytes):
                output += found
                continue
            yield output
            output = b""
            self.take(*found)
        yield output

    def end(self) -> bytes:
        """The output that is left at the end of the stream."""
        left = [part for (_, kind), part in self._parts.items() if kind == OUTPUT] + [self._rest]
        self._parts, self._rest = {}, b""
        return b"".join(part + b"\n" for part in left if part)

    def _line(self, line: bytes) -> bytes | tuple[int, Message]:
        # a login script may have printed something without an end of line before the first frame
        found = _FRAME.fullmatch(line) if self._has_frames else _FRAME.search(line)
        if not found:
            if _MEMORY_KILL.search(line):
                self.memory_kills.append(line.decode("utf-8", "replace").strip())
            self.is_cancelled |= bool(_CANCEL.search(line.strip()))
            return b"" if line.strip() in self.noise else line
        self._has_frames = True
        host, kind = int(found[1]), found[2].lower()
        content = self._parts.pop((host, kind), b"") + found[3]
        if found[2] != kind:
            self._parts[host, kind] = content
            return b""
        if kind == OUTPUT:
            return b"" if content in self.noise else content + b"\n"
        try:
            return host, Message.from_line(content)
        except ValueError:
            return line
