"""How the programs on the nodes talk to the step over the output of whatever started them, such as srun.

The outputs of all nodes may arrive in one stream, in which a scheduler keeps short lines whole, and nothing else. So
everything that a node says is a frame: a short line with the number of the node. What is not a frame is passed on
unchanged: a message of the scheduler, or of an interpreter that did not start.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from cloudtrain.contract.documents import Fields, parse_json

OUTPUT, PART, EXIT, PORT, INTERRUPT = b"o", b"p", b"x", b"l", b"i"
"""A line of output, a part of a longer one, the exit code of a runtime, the port of the leader, and the number of a
SIGINT or SIGHUP."""

LONGEST = 900
"""Bytes of a frame's content. Slurm keeps lines of up to 1,024 bytes whole."""

_MEMORY_KILL = re.compile(
    rb"^(?:slurmstepd|srun)\S* error: .*?(?:oom[-_ ]kill event|Out Of Memory|exceeded (?:job |step )?memory limit)",
    re.I,
)
_CANCEL = re.compile(rb"error: \*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*$")
"""A step of Slurm that someone has cancelled. With another cause, such as a time limit, the line ends with that."""
_FRAME = re.compile(rb"\x02(\d+)([opxli])(.*)\n", re.DOTALL)


def frame(node: int, kind: bytes, content: bytes) -> bytes:
    return b"\x02%d%s%s\n" % (node, kind, content)


def output_frames(node: int, line: bytes) -> bytes:
    """The frames of one line of output, which may end without a newline."""
    content = line.rstrip(b"\n")
    cut = [content[start : start + LONGEST] for start in range(0, len(content), LONGEST)] or [b""]
    parts = [frame(node, PART, part) for part in cut[:-1]]
    return b"".join([*parts, frame(node, OUTPUT, cut[-1])])


@dataclass
class FrameReader:
    """Takes the stream apart.

    Args:
        noise: lines that are left out: messages of the scheduler about what the user did not ask for.
    """

    noise: tuple[bytes, ...] = ()
    exits: dict[int, int] = field(default_factory=dict)
    """The exit codes of the nodes' runtimes, negative for a signal."""
    port: int | None = None
    """The port of the leader."""
    interrupted: int = 0
    """The SIGINT or SIGHUP that the programs on the nodes got."""
    memory_kills: list[str] = field(default_factory=list)
    """Lines of the scheduler about processes that were killed for their use of memory."""
    is_cancelled: bool = False
    """Whether someone has cancelled the step of the programs on the nodes."""
    _rest: bytes = b""
    _parts: dict[int, bytes] = field(default_factory=dict)

    def read(self, data: bytes) -> bytes:
        """The output in ``data``: whole lines."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        return b"".join(self._line(line + b"\n") for line in lines)

    def end(self) -> bytes:
        """The output that is left at the end of the stream."""
        left = [*self._parts.values(), self._rest]
        self._parts, self._rest = {}, b""
        return b"".join(part + b"\n" for part in left if part)

    def _line(self, line: bytes) -> bytes:
        found = _FRAME.fullmatch(line)
        if not found:
            if _MEMORY_KILL.search(line):
                self.memory_kills.append(line.decode("utf-8", "replace").strip())
            self.is_cancelled |= bool(_CANCEL.search(line.strip()))
            return b"" if line.strip() in self.noise else line
        node, kind, content = int(found[1]), found[2], found[3]
        if kind == PART:
            self._parts[node] = self._parts.get(node, b"") + content
            return b""
        if kind == OUTPUT:
            whole = self._parts.pop(node, b"") + content
            return b"" if whole in self.noise else whole + b"\n"
        try:
            number = int(content)
        except ValueError:
            return line
        if kind == INTERRUPT:
            self.interrupted = number
        elif kind == EXIT:
            self.exits.setdefault(node, number)
        else:
            self.port = number
        return b""


@dataclass(frozen=True)
class NodeJob:
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

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> NodeJob:
        given = Fields(parse_json(line))
        return cls(
            list(given.texts("names")),
            dict(given.text_mapping("environment", {})),
            dict(given.text_mapping("settings", {})),
            given.text("interface", "auto"),
            given.text("node_folder", ""),
            dict(given.mapping("container", {})),
            list(given.texts("mounts", ())),
            list(given.texts("shared", ())),
            given.text("runtime", ""),
            given.text("srun", ""),
        )
