"""Lines out of a stream of bytes."""

from __future__ import annotations

import pytest

from cloudtrain.runtime.output import LONGEST_LINE, MetricFinder, Stream


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


def test_metrics_are_numbers_after_their_names() -> None:
    found: list[tuple[str, float]] = []
    finder = MetricFinder(
        (("loss", "loss=([^ ]+)"), ("acc", "acc=([0-9.]+)")),
        lambda _, name, value, rank: found.append((name, value)),
    )
    for line in ("loss=0.5 acc=0.9", "loss=abc", "nothing", "loss=1e-3"):
        finder(Stream(1, -1), line)
    assert found == [("loss", 0.5), ("acc", 0.9), ("loss", 0.001)]
