"""Lines from streams of bytes and from real pipes."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cloudtrain.runtime.output import LONGEST_LINE, TAIL_LINES, OutputMerger, Stream, say


@pytest.mark.parametrize(
    ("pieces", "lines", "rest"),
    [
        ([b"a\nb\n"], [b"a", b"b"], []),
        ([b"a", b"b\nc"], [b"ab"], [b"c"]),
        ([b"1%\r2%\r3%\n"], [b"3%"], []),
        ([b"dos\r\n"], [b"dos"], []),
        ([b"\n\n"], [b"", b""], []),
        ([b"x" * (LONGEST_LINE + 1)], [b"x" * (LONGEST_LINE + 1)], []),
        (["é\n".encode()[:1], "é\n".encode()[1:]], ["é".encode()], []),
    ],
)
def test_lines(pieces: list[bytes], lines: list[bytes], rest: list[bytes]) -> None:
    stream = Stream(0, -1)
    assert [line for piece in pieces for line in stream.take(piece)] == lines
    assert stream.rest() == rest
    assert stream.rest() == []


def write_into(pipe: str, script: str) -> None:
    """Start a process that writes the output of a shell script to the named pipe."""
    subprocess.run(["sh", "-c", f"({script}) > {pipe}"], check=True, timeout=240)


@pytest.mark.parametrize("full", ["merged", "kept", "metrics"])
def test_a_full_disk_stops_no_rank_and_is_reported_once(tmp_path: Path, full: str) -> None:
    """With the kernel's full disk, /dev/full."""
    errors: list[OSError] = []

    def on_lines(stream: Stream, lines: Sequence[str]) -> None:
        if full == "metrics":
            Path("/dev/full").write_text("\n".join(lines))

    if full == "kept":
        (tmp_path / "rank-0.log").symlink_to("/dev/full")
    target = os.open("/dev/full" if full == "merged" else tmp_path / "merged", os.O_WRONLY | os.O_CREAT)
    output = OutputMerger(target, tmp_path, on_lines, errors.append)
    output.add_rank(str(tmp_path / "pipe"), 0)
    output.start()
    write_into(str(tmp_path / "pipe"), "seq 100000")  # ten times the capacity of a pipe
    assert output.tail(0)[-1] == "100000"
    output.close()
    os.close(target)
    [error] = errors
    assert error.errno == errno.ENOSPC
    assert "lost" in str(error)
    whole = "".join(f"{number}\n" for number in range(1, 100_001))
    if full != "kept":
        assert (tmp_path / "rank-0.log").read_text() == whole
    if full != "merged":
        assert (tmp_path / "merged").read_text() == "".join(
            f"[rank 0] {line}\n" for line in whole.splitlines()
        )


def test_the_tail_contains_everything_that_was_written(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe")
    with open(tmp_path / "merged", "wb") as target:
        output = OutputMerger(target.fileno(), tmp_path)
        output.add_rank(pipe, 0)
        assert output.tail(0) == ()  # not started yet
        output.start()
        for number in range(100):
            write_into(pipe, f"printf '%s\n1%%\rend {number}' {number}")
            assert output.tail(0)[-2:] == (str(number), f"end {number}")
            write_into(pipe, "echo")
        write_into(pipe, "seq 1000; printf last")
        assert len(output.tail(0)) == TAIL_LINES
        output.close()
    assert output.tail(0)[-2:] == ("1000", "last")
    assert output.tail(1) == ()


def test_the_tail_does_not_wait_for_a_slow_reader(tmp_path: Path) -> None:
    read, write = os.pipe()
    output = OutputMerger(write, tmp_path)
    output.add_rank(str(tmp_path / "pipe"), 0)
    output.start()
    write_into(str(tmp_path / "pipe"), "seq 15000")  # more than the pipe of the merged output holds
    assert output.tail(0)  # returns although the output is not read
    with open(read, "rb") as reader:
        for expected in range(1, 15001):
            assert reader.readline() == b"[rank 0] %d\n" % expected
        output.close()
    os.close(write)


def test_the_lines_of_the_runtime_are_lost_on_a_full_disk() -> None:
    """A warning about an upload, for example, must not end it."""
    log = os.dup(1)
    try:
        with open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), 1)
        say("the model is not where it belongs")
    finally:
        os.dup2(log, 1)
        os.close(log)
