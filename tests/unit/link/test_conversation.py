"""Two ends of a conversation, whose connections break at random."""

from __future__ import annotations

import random

import pytest

from cloudtrain.link.conversation import Conversation


@pytest.mark.parametrize("seed", range(20))
def test_every_message_arrives_once_and_in_order(seed: int) -> None:
    draw = random.Random(seed)
    ends = Conversation(), Conversation()
    sent: tuple[list[bytes], list[bytes]] = [], []
    received: tuple[list[bytes], list[bytes]] = [], []
    wires: tuple[list[bytes], list[bytes]] = [], []

    def deliver(to: int, count: int) -> None:
        for _ in range(min(count, len(wires[1 - to]))):
            message = ends[to].read(wires[1 - to].pop(0))
            if message not in (None, b"beat"):
                received[to].append(message or b"")

    for number in range(300):
        end = draw.randrange(2)
        action = draw.choice(["write", "write", "deliver", "beat", "break"])
        if action == "write":
            sent[end].append(f"{end} {number}".encode())
            wires[end].append(ends[end].write(sent[end][-1]))
        elif action == "beat":
            wires[end].append(ends[end].write_fleeting(b"beat"))
        elif action == "deliver":
            deliver(end, draw.randrange(5))
        else:
            for side in (0, 1):
                wires[side][:] = ends[side].resume(ends[1 - side].received)
    for side in (0, 1):
        wires[side][:] = ends[side].resume(ends[1 - side].received)
    deliver(0, 1000)
    deliver(1, 1000)
    assert received == (sent[1], sent[0])


def test_messages_are_kept_only_until_they_are_acknowledged() -> None:
    one, other = Conversation(), Conversation()
    for number in range(100):
        other.read(one.write(b"%d" % number))
    assert len(list(one.resume(0))) == 100
    one.read(other.write_fleeting(b""))
    assert list(one.resume(0)) == []


@pytest.mark.parametrize("envelope", [b"", b"short", bytes(7) + b"\x05" + bytes(8)])
def test_a_gap_is_an_error(envelope: bytes) -> None:
    with pytest.raises(ValueError, match=r"not an envelope|came after"):
        Conversation().read(envelope)
