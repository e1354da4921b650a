"""The messages between the coordinator and the other ranks, their wire format, and numbers that replace them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.contract.documents import parse_json
from cloudtrain.distributed.reduce_op import ScaledOp

_HEADER = struct.Struct("!II")
_NUMBER = struct.Struct("!I")
_encode = json.JSONEncoder(separators=(",", ":")).encode
EAGER_BYTES = 16 << 10
"""Data up to this size is sent with the request, through rank 0."""
HELLO_BYTES = 1024
"""The longest first message of a rank."""
MESSAGE_BYTES = 64 << 20
"""The longest message. Only the results of small operations among thousands of ranks are nearly as long."""
POSITION_SECONDS = 2.0
"""How long rank 0 waits for the other ranks' positions."""
GLOBAL = 0
"""The process set of all ranks."""
JOIN, ADD_SET, REMOVE_SET = "join", "add_process_set", "remove_process_set"
OPEN_LAYER_GROUP = "open_layer_group"
"""Kinds of requests that are not collectives on tensors."""
HELLO, REQUEST, RESPONSE, TIME, BYE, LOST = "hello", "request", "response", "time", "bye", "lost"
ASK_POSITIONS, POSITION, ALL_POSITIONS = "ask positions", "position", "all positions"
NUMBERS = "numbers"
"""Kinds of messages. `NUMBERS` replaces requests or responses that have a number on both ends."""
READ_BYTES = 1 << 16
"""The most that is read at a time. With more, ``recv`` would map and unmap memory in every call."""


@dataclass(frozen=True)
class CollectiveRequest:
    """One rank's request to run one operation."""

    kind: str
    """allreduce, allgather, ..."""
    key: str
    """The name by which ranks are matched within the process set."""
    set_id: int = GLOBAL
    must_match: dict[str, Any] = field(default_factory=dict)
    """Values that must be the same on all ranks, by the names that errors use."""
    per_rank: Any = None
    """Data that may differ between ranks; every rank receives the data of all."""
    payload: bytes | None = None
    """The data itself if it is small; the response then carries the result."""

    def with_data(self, payload: bytes | None) -> CollectiveRequest:
        """The same request with other data. Much faster than ``replace``."""
        return CollectiveRequest(self.kind, self.key, self.set_id, self.must_match, self.per_rank, payload)

    @property
    def named(self) -> bool:
        """Whether the script named the tensor."""
        return ":" in self.key

    @property
    def label(self) -> str:
        """The name of the operation in errors."""
        name = self.key.partition(":")[2] or self.key
        return self.kind if name == self.kind else f"{self.kind} of {name}"


def described(
    shapes: list[list[Any]], types: list[str], how: ScaledOp | None = None, **more: Any
) -> dict[str, Any]:
    """`CollectiveRequest.must_match` of an operation on tensors. A single tensor has no lists of shapes and types."""
    one = len(types) == 1
    facts: dict[str, Any] = {"shape": shapes[0] if one else shapes, "type": types[0] if one else types}
    if how is not None:
        op, prescale, postscale = how
        facts.update(operation=op.name, prescale_factor=prescale, postscale_factor=postscale)
    return {**facts, **more}


def add_set(ranks: list[int]) -> CollectiveRequest:
    """The request that all ranks send to register a process set."""
    return CollectiveRequest(ADD_SET, f"{ADD_SET}:{'-'.join(map(str, ranks))}", must_match={"ranks": ranks})


def remove_set(set_id: int) -> CollectiveRequest:
    """The request that all ranks send to remove a process set."""
    return CollectiveRequest(REMOVE_SET, f"{REMOVE_SET}:{set_id}", must_match={"process set": set_id})


def open_layer_group() -> CollectiveRequest:
    """The request that all ranks send to open the process group of exchanges inside layers."""
    return CollectiveRequest(OPEN_LAYER_GROUP, OPEN_LAYER_GROUP)


@dataclass(frozen=True)
class CollectiveResponse:
    """The coordinator's decision on one operation: all ranks start it now, or it fails on all of them."""

    set_id: int
    key: str
    error: str = ""
    per_rank: list[Any] = field(default_factory=list)
    """`CollectiveRequest.per_rank` of each member of the process set; None for a rank that has joined. Empty if no
    rank sent any."""
    request: CollectiveRequest | None = None
    """The operation that a joined rank takes part in; None for other ranks."""
    payload: bytes | None = None
    """The result, if every rank sent its data with the request."""
    number: int | None = None
    """The request's number, which may replace it from now on."""
    known: bool = False
    """Whether all ranks have received the number before, so that it may replace the response."""


Message = tuple[str, Any, "bytes | None"]
"""Kind, content (JSON) and attached bytes."""


def pack(kind: str, content: Any, payload: bytes | None = None) -> bytes:
    text = _encode([kind, content, payload is not None]).encode()
    payload = payload or b""
    return _HEADER.pack(len(text), len(payload)) + text + payload


class Unpacker:
    """Splits a byte stream into messages.

    Args:
        limit: the longest message in bytes.
    """

    def __init__(self, limit: int = MESSAGE_BYTES) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that ``data`` completes. Raises ValueError for an invalid message."""
        buffer = self._buffer
        buffer += data
        begin = 0
        try:
            while len(buffer) - begin >= _HEADER.size:
                text_length, payload_length = _HEADER.unpack_from(buffer, begin)
                text = begin + _HEADER.size
                payload = text + text_length
                end = payload + payload_length
                if end - begin > self.limit:
                    raise ValueError(f"a message of {end - begin} bytes is longer than {self.limit}")
                if len(buffer) < end:
                    return
                begin = end
                if not text_length:
                    yield NUMBERS, _parse_numbers(buffer[payload:end]), None
                elif text_length == _NUMBER.size:
                    yield NUMBERS, _parse_numbers(buffer[text:payload]), bytes(buffer[payload:end])
                else:
                    kind, content, has_payload = _parse(bytes(buffer[text:payload]))
                    yield kind, content, bytes(buffer[payload:end]) if has_payload else None
        finally:
            del buffer[:begin]


def _parse(text: bytes) -> tuple[str, Any, bool]:
    """Kind, content, and whether a payload follows. Raises ValueError."""
    parsed = parse_json(text)
    if not isinstance(parsed, list) or len(parsed) != 3 or not isinstance(parsed[0], str):
        raise ValueError("not a message")
    return parsed[0], parsed[1], bool(parsed[2])


def _parse_numbers(packed: bytearray) -> list[int]:
    """Raises ValueError."""
    if not packed or len(packed) % _NUMBER.size:
        raise ValueError("not a list of numbers")
    return [number for (number,) in _NUMBER.iter_unpack(packed)]


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """The message that replaces requests or responses that have these numbers. It has no text."""
    return _HEADER.pack(0, len(numbers) * _NUMBER.size) + b"".join(map(_NUMBER.pack, numbers))


def pack_number(number: int, payload: bytes | None) -> bytes:
    """The message that replaces one request or response. With data, the number replaces the text, to be short."""
    if payload is None:
        return pack_numbers([number])
    return _HEADER.pack(_NUMBER.size, len(payload)) + _NUMBER.pack(number) + payload


def pack_request(request: CollectiveRequest) -> bytes:
    content = [request.kind, request.key, request.set_id, request.must_match, request.per_rank]
    return pack(REQUEST, content, request.payload)


def unpack_request(content: Sequence[Any], payload: bytes | None) -> CollectiveRequest:
    kind, key, set_id, must_match, per_rank = content
    return CollectiveRequest(kind, key, set_id, must_match, per_rank, payload)


def pack_response(response: CollectiveResponse) -> bytes:
    if response.known and response.number is not None and response.request is None and not response.error:
        return pack_number(response.number, response.payload)
    request = response.request and [response.request.kind, response.request.must_match]
    content = [response.set_id, response.key, response.error, response.per_rank, request, response.number]
    return pack(RESPONSE, content, response.payload)


def unpack_response(content: Sequence[Any], payload: bytes | None) -> CollectiveResponse:
    set_id, key, error, per_rank, requested, number = content
    request = requested and CollectiveRequest(requested[0], key, set_id, requested[1])
    return CollectiveResponse(set_id, key, error, per_rank, request, payload, number)


MOST_NUMBERS = 1 << 14
"""The most requests that get a number; all others are sent in full."""


class _Numbers:
    """The numbers of requests. Requests with the same bytes, except for their data, have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._latest: dict[tuple[int, str], tuple[CollectiveRequest, int]] = {}
        """The last request found for each key, because comparing takes less time than packing."""

    def find(self, request: CollectiveRequest) -> tuple[int | None, bytes]:
        """The number of ``request``, and its bytes without its data; the bytes are empty if a comparison found it."""
        key = request.set_id, request.key
        latest, number = self._latest.get(key, (None, 0))
        if (
            latest is not None
            and request.per_rank is None
            and (
                request is latest or (request.kind == latest.kind and request.must_match == latest.must_match)
            )
        ):
            return number, b""
        bare = request.with_data(None)
        packed = pack_request(bare)
        found = self._numbers.get(packed)
        if found is not None and request.per_rank is None:
            self._latest[key] = bare, found
        return found, packed


class AssignedNumbers(_Numbers):
    """Numbers for requests that repeat, so that a step sends a few bytes for each operation instead of its description.

    This is the response cache of Horovod. The coordinator assigns a number to a request that was agreed on before, and
    announces it with the response. All ranks of the process set get that response, and a rank has one operation of a
    name at a time, so no rank receives a number that was not announced to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._requests: list[CollectiveRequest] = []
        """By number."""
        self._seen: set[bytes] = set()
        """Requests that have occurred once. Names such as ``loss at step 7`` never repeat, and need no number."""

    def request(self, number: int, payload: bytes | None = None) -> CollectiveRequest:
        """The request that a number with this data replaces. Raises ValueError if there is no such number."""
        if number >= len(self._requests):
            raise ValueError(f"there is no request {number}")
        request = self._requests[number]
        return request if payload is None else request.with_data(payload)

    def of(self, request: CollectiveRequest) -> tuple[int | None, bool]:
        """The number of a request that all ranks have sent, and whether they have received it already."""
        if not request.named or request.kind in (ADD_SET, REMOVE_SET):
            return None, False
        number, packed = self.find(request)
        if number is not None:
            return number, True
        if packed not in self._seen:
            if len(self._seen) >= MOST_NUMBERS:
                self._seen.clear()
            self._seen.add(packed)
            return None, False
        if len(self._requests) >= MOST_NUMBERS:
            return None, False
        self._seen.remove(packed)
        self._numbers[packed] = len(self._requests)
        self._requests.append(request.with_data(None))
        return self._numbers[packed], False


class KnownNumbers(_Numbers):
    """The part of the `AssignedNumbers` that a rank has received."""

    def __init__(self) -> None:
        super().__init__()
        self._responses: dict[int, CollectiveResponse] = {}
        self._unanswered: dict[tuple[int, str], bytes] = {}

    def pack(self, request: CollectiveRequest) -> bytes:
        """The message to send for ``request``."""
        number, packed = self.find(request)
        if number is not None:
            return pack_number(number, request.payload)
        self._unanswered[request.set_id, request.key] = packed
        return packed if request.payload is None else pack_request(request)

    def learn(self, response: CollectiveResponse) -> None:
        """Remember the number of the request that ``response`` answers, if it has one."""
        if response.number is not None:
            self._responses[response.number] = CollectiveResponse(response.set_id, response.key)
        self._answer(response, response.number)

    def responses(self, numbers: Sequence[int], payload: bytes | None = None) -> list[CollectiveResponse]:
        """The responses that ``numbers`` replace. Raises ValueError if one is unknown.

        Args:
            payload: the result, if there is one number.
        """
        unknown = [number for number in numbers if number not in self._responses]
        if unknown:
            raise ValueError(f"there are no requests {unknown}")
        found = [self._responses[number] for number in numbers]
        for number, response in zip(numbers, found):  # this rank may have joined when the number was assigned
            self._answer(response, number)
        if payload is None:
            return found
        return [CollectiveResponse(response.set_id, response.key, payload=payload) for response in found]

    def _answer(self, response: CollectiveResponse, number: int | None) -> None:
        """Mark the request that ``response`` answers as answered, and record its ``number`` if it has one."""
        packed = self._unanswered.pop((response.set_id, response.key), None)
        if packed is not None and number is not None and response.request is None:
            self._numbers[packed] = number
