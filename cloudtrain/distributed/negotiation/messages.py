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
class CollectiveRequest:
    """One rank's part in one operation."""

    kind: str
    """allreduce, allgather, ..."""
    key: str
    """What ranks are matched by, within the process set."""
    set_id: int = GLOBAL
    must_match: dict[str, Any] = field(default_factory=dict)
    """What has to be the same on all ranks, by the names used in errors."""
    per_rank: Any = None
    """What may differ; every rank gets that of all."""
    payload: bytes | None = None
    """The data itself, where it is small: then the response brings the result."""

    @property
    def named(self) -> bool:
        """Whether the script has named the tensor."""
        return ":" in self.key

    @property
    def label(self) -> str:
        """What to call the operation in an error."""
        name = self.key.partition(":")[2] or self.key
        return self.kind if name == self.kind else f"{self.kind} of {name}"


def add_set(ranks: list[int]) -> CollectiveRequest:
    """What all ranks ask for to make a process set known."""
    return CollectiveRequest(ADD_SET, f"{ADD_SET}:{'-'.join(map(str, ranks))}", must_match={"ranks": ranks})


def remove_set(set_id: int) -> CollectiveRequest:
    """What all ranks ask for to forget it."""
    return CollectiveRequest(REMOVE_SET, f"{REMOVE_SET}:{set_id}", must_match={"process set": set_id})


@dataclass(frozen=True)
class CollectiveResponse:
    """The coordinator's word on one operation: all ranks start it now, or none does."""

    set_id: int
    key: str
    error: str = ""
    per_rank: list[Any] = field(default_factory=list)
    """`CollectiveRequest.per_rank` of each member of the process set; None for a rank that has joined."""
    request: CollectiveRequest | None = None
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


def pack_request(request: CollectiveRequest) -> bytes:
    content = [request.kind, request.key, request.set_id, request.must_match, request.per_rank]
    return pack("request", content, request.payload)


def unpack_request(content: Sequence[Any], payload: bytes | None) -> CollectiveRequest:
    kind, key, set_id, must_match, per_rank = content
    return CollectiveRequest(kind, key, set_id, must_match, per_rank, payload)


def pack_response(response: CollectiveResponse) -> bytes:
    asked = response.request and [response.request.kind, response.request.must_match]
    content = [response.set_id, response.key, response.error, response.per_rank, asked]
    return pack("response", content, response.payload)


def unpack_response(content: Sequence[Any], payload: bytes | None) -> CollectiveResponse:
    set_id, key, error, per_rank, asked = content
    request = asked and CollectiveRequest(asked[0], key, set_id, asked[1])
    return CollectiveResponse(set_id, key, error, per_rank, request, payload)
