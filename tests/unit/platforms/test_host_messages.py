"""The messages of hosts, and the frames that carry them next to their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cloudtrain.runtime.start import messages
from cloudtrain.runtime.start.host_link import HostLink
from cloudtrain.runtime.start.messages import (
    Beat,
    Data,
    Exit,
    Failed,
    FrameReader,
    Input,
    Kill,
    Leader,
    Message,
    NodeJob,
    Signal,
    output_frames,
)


def test_a_frame_with_an_absurd_host_is_output() -> None:
    reader = FrameReader(lambda host, message: pytest.fail("a message"))
    line = b"\x02" + b"9" * 5000 + b'm{"type":"Exit","code":1}\n'
    assert b"".join(reader.read(line)) == line


def test_frames_of_several_hosts_in_one_stream() -> None:
    got: list[tuple[int, Message]] = []
    reader = FrameReader(lambda host, message: got.append((host, message)), noise=(b"srun: noise",))
    long = b"x" * 5000
    failed = Failed({"message": "y" * 3000})
    first, second = output_frames(0, long), output_frames(1, b"short")
    cut = first.index(b"\n", 1000) + 1
    stream = b"srun: noise\nsrun: error: kept\n" + first[:cut] + second + Signal(2).frames(0) + first[cut:]
    stream += Leader("n1:20123").frames(0) + Exit(-9).frames(1) + failed.frames(0)
    assert max(map(len, stream.split(b"\n"))) <= 1024
    out = b"".join(b"".join(reader.read(stream[at : at + 7])) for at in range(0, len(stream), 7))
    assert out == b"srun: error: kept\nshort\n" + long + b"\n"
    assert got == [(0, Signal(2)), (0, Leader("n1:20123")), (1, Exit(-9)), (0, failed)]
    assert b"".join(reader.read(b"no line end")) == b""
    assert reader.end() == b"no line end\n"


def test_bytes_that_follow_a_message_are_not_output() -> None:
    got: list[object] = []
    reader = FrameReader(lambda _, message: got.append(message))
    content = b"\x020oline\n\x00\n" * 300
    stream = (
        output_frames(0, b"before") + Data.of(content).frames(0) + Data.of(b"").frames(0) + Exit(0).frames(0)
    )
    for at in range(0, len(stream), 7):
        got += filter(None, reader.read(stream[at : at + 7]))
    assert got == [b"before\n", Data.of(content), Data.of(b""), Exit(0)]
    absurd = b'\x020m{"type": "Data", "size": 999999999}\n'
    assert b"".join(reader.read(absurd)) == absurd, "it is output"


def test_a_host_reads_messages_and_their_bytes() -> None:
    reading, writing = os.pipe()
    sent = [Signal(15), Data.of(b"\n{}\n"), Beat(), Exit(1)]
    os.write(writing, b"".join(message.to_line() for message in sent))
    os.close(writing)
    given = Input(reading)
    assert given.wait() == sent[0]
    assert [*given.pending()] == [sent[1], sent[3]], "a beat is none for the host"
    assert given.wait() is None
    os.close(reading)


def test_output_before_a_message_is_read_before_the_message() -> None:
    order: list[object] = []
    reader = FrameReader(lambda _, message: order.append(message))
    for output in reader.read(b"one\n" + Exit(0).frames(0) + b"two\n"):
        order.append(output)
    assert order == [b"one\n", Exit(0), b"two\n"]


def test_the_first_frame_may_follow_an_unfinished_line_of_a_login_script() -> None:
    got: list[Message] = []
    reader = FrameReader(lambda _, message: got.append(message))
    assert not b"".join(reader.read(b"welcome> " + Exit(3).frames(0)))
    assert got == [Exit(3)]
    later = b"rank: " + Exit(4).frames(0)
    assert b"".join(reader.read(later)) == later, "only whole lines are frames from then on"


@pytest.mark.parametrize("message", [NodeJob(["n1"], {"A": "b"}, srun="pmix"), Kill(), Exit(1)])
def test_a_message_from_its_line(message: Message) -> None:
    assert Message.from_line(message.to_line()) == message


@pytest.mark.parametrize(
    "content",
    [[], 1, {}, {"type": []}, {"type": "Message"}, {"type": "Exit"}, {"type": "Exit", "code": "1"},
     {"type": "Exit", "code": True}, {"type": "Exit", "code": 1, "more": 1},
     {"type": "Done", "completed": ["1"], "all": True}, {"type": "Ready", "ports": {"agent": "1"}, "ssh": ""}],
)  # fmt: skip
def test_anything_else_is_output(content: object) -> None:
    line = json.dumps(content).encode()
    with pytest.raises(ValueError, match="message"):
        Message.from_line(line)
    framed = b"\x020m%s\n" % line
    assert b"".join(FrameReader(lambda _, message: None).read(framed)) == framed, "it is output"


def test_unfinished_frames_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MOST_UNFINISHED", 10_000)
    reader = FrameReader(lambda _, message: pytest.fail("a message"))
    stream = b"".join(
        b"\x02%d%s%s\n" % (host % 100, kind, b"x" * 900) for host in range(400) for kind in (b"O", b"M")
    )
    output = b"".join(reader.read(stream))
    assert sum(map(len, reader._parts.values())) <= 10_000
    assert len(output) > 400 * 2 * 900 - 10_000, "the rest is output"


def test_a_closed_link_keeps_the_complaint_and_no_descriptor() -> None:
    program = "import sys; sys.stderr.write('no route\\n'); sys.stdin.read()"
    link = HostLink(
        [sys.executable, "-c", program],
        lambda *_: None,
        lambda _: None,
        lambda _: None,
        errors=subprocess.PIPE,
    )
    link.start()
    link.close(60)
    assert link.process.stderr and link.process.stderr.closed
    assert link.complaint() == b"no route\n"
