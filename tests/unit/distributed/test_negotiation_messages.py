"""Messages survive packing and unpacking, however the stream is split."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from cloudtrain.distributed.negotiation.messages import (
    CollectiveRequest,
    CollectiveResponse,
    Unpacker,
    pack,
    pack_request,
    pack_response,
    unpack_request,
    unpack_response,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.none() | st.binary(max_size=40)
REQUESTS = st.builds(
    CollectiveRequest,
    kind=st.sampled_from(["allreduce", "allgather", "join"]),
    key=st.text(max_size=12),
    set_id=st.integers(0, 9),
    must_match=st.dictionaries(st.text(max_size=6), JSON, max_size=3),
    per_rank=JSON,
    payload=PAYLOADS,
)
RESPONSES = st.builds(
    CollectiveResponse,
    set_id=st.integers(0, 9),
    key=st.text(max_size=12),
    error=st.text(max_size=12),
    per_rank=st.lists(JSON, max_size=3),
    request=st.none() | st.builds(CollectiveRequest, kind=st.just("allreduce"), key=st.just("")),
    payload=PAYLOADS,
)


@given(st.lists(REQUESTS | RESPONSES, max_size=6), st.lists(st.integers(1, 50), max_size=20))
def test_any_messages_split_anywhere(
    sent: list[CollectiveRequest | CollectiveResponse], cuts: list[int]
) -> None:
    stream = b"".join(pack_request(m) if isinstance(m, CollectiveRequest) else pack_response(m) for m in sent)
    unpacker, received = Unpacker(), []
    for length in [*cuts, len(stream)]:
        for kind, content, payload in unpacker.feed(stream[:length]):
            unpack = {"request": unpack_request, "response": unpack_response}[kind]
            received.append(unpack(content, payload))
        stream = stream[length:]
    assert [_comparable(message) for message in received] == [_comparable(message) for message in sent]


def _comparable(message: CollectiveRequest | CollectiveResponse) -> object:
    """A response's request is sent without what the response has already."""
    if isinstance(message, CollectiveResponse) and message.request is not None:
        requested = (message.request.kind, message.request.must_match)
        return message.set_id, message.key, message.error, message.per_rank, message.payload, requested
    return message


def test_one_byte_at_a_time() -> None:
    unpacker = Unpacker()
    stream = pack("position", {"at": "ü"}) + pack("x", None, b"") + pack("y", [1], b"\x00\xff")
    received = [message for byte in stream for message in unpacker.feed(bytes([byte]))]
    assert received == [("position", {"at": "ü"}, None), ("x", None, b""), ("y", [1], b"\x00\xff")]


def test_invalid_messages() -> None:
    with pytest.raises(ValueError, match=r"a message of \d+ bytes is longer than 67108864"):
        list(Unpacker().feed(b"GET / HTTP/1.1\r\n\r\n"))
    for text in (b"[]", b"{}", b"?!", b"12"):
        with pytest.raises((ValueError, TypeError)):
            list(Unpacker().feed(b"\x00\x00\x00\x02\x00\x00\x00\x00" + text))


@pytest.mark.parametrize(
    ("key", "label", "named"),
    [("allreduce:weights", "allreduce of weights", True), ("noname.3", "allreduce of noname.3", False)],
)
def test_labels(key: str, label: str, named: bool) -> None:
    request = CollectiveRequest("allreduce", key)
    assert (request.label, request.named) == (label, named)
