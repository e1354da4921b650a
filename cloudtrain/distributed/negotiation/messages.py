"""What ranks tell each other, and its form on the wire."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEADER = struct.Struct("!II")
EAGER_BYTES = 16 << 10
"""Data of up to this size goes along with the request, over rank 0."""
GLOBAL = 0
"""The process set of all ranks."""
JOIN, ADD_SET, REMOVE_SET = "join", "add_process_set", "remove_process_set"


@dataclass(frozen=True)
class Request:
    """One rank's part in one operation."""

    kind: str
    """allreduce, allgather, ..."""
    key: str
    """What ranks are matched by, within the process set."""
    set_id: int = GLOBAL
    equal: dict[str, Any] = field(default_factory=dict)
    """What has to be the same on all ranks, by the names used in errors."""
    own: Any = None
    """What may differ; every rank gets that of all."""
    payload: bytes | None = None
    """The data itself, where it is small: then the verdict brings the result."""

    @property
    def named(self) -> bool:
        """Whether the script has named the tensor."""
        return ":" in self.key

    @property
    def label(self) -> str:
        """What to call the operation in an error."""
        name = self.key.partition(":")[2] or self.key
        return self.kind if name == self.kind else f"{self.kind} of {name}"


def add_set(ranks: list[int]) -> Request:
    """What all ranks ask for to make a process set known."""
    return Request(ADD_SET, f"{ADD_SET}:{'-'.join(map(str, ranks))}", equal={"ranks": ranks})


def remove_set(set_id: int) -> Request:
    """What all ranks ask for to forget it."""
    return Request(REMOVE_SET, f"{REMOVE_SET}:{set_id}", equal={"process set": set_id})


@dataclass(frozen=True)
class Verdict:
    """The coordinator's word on one operation: all ranks start it now, or none does."""

    set_id: int
    key: str
    error: str = ""
    own: list[Any] = field(default_factory=list)
    """`Request.own` of the members of the process set, in order of rank; None for one that has joined."""
    request: Request | None = None
    """For a rank that has joined: what it has to take part in."""
    payload: bytes | None = None
    """The result, where every rank sent its data along."""


Message = tuple[str, Any, "bytes | None"]
"""A kind, its content (JSON), and bytes that go along."""


def pack(kind: str, content: Any, payload: bytes | None = None) -> bytes:
    text = json.dumps([kind, content, payload is not None], separators=(",", ":")).encode()
    payload = payload or b""
    return _HEADER.pack(len(text), len(payload)) + text + payload


class Unpacker:
    """Messages from a stream of bytes.

    Args:
        limit: bytes of the longest message that is taken; None for no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that ``data`` completes. Raises ValueError for what is none."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            text_length, payload_length = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + text_length + payload_length
            if self.limit is not None and end > self.limit:
                raise ValueError("the message is too long")
            if len(self._buffer) < end:
                return
            kind, content, has_payload = json.loads(self._buffer[_HEADER.size : _HEADER.size + text_length])
            payload = bytes(self._buffer[_HEADER.size + text_length : end]) if has_payload else None
            del self._buffer[:end]
            yield kind, content, payload


def pack_request(request: Request) -> bytes:
    content = [request.kind, request.key, request.set_id, request.equal, request.own]
    return pack("request", content, request.payload)


def unpack_request(content: Sequence[Any], payload: bytes | None) -> Request:
    kind, key, set_id, equal, own = content
    return Request(kind, key, set_id, equal, own, payload)


def pack_verdict(verdict: Verdict) -> bytes:
    asked = verdict.request and [verdict.request.kind, verdict.request.equal]
    content = [verdict.set_id, verdict.key, verdict.error, verdict.own, asked]
    return pack("verdict", content, verdict.payload)


def unpack_verdict(content: Sequence[Any], payload: bytes | None) -> Verdict:
    set_id, key, error, own, asked = content
    request = asked and Request(asked[0], key, set_id, asked[1])
    return Verdict(set_id, key, error, own, request, payload)
