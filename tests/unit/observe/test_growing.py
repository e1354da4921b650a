"""Reading what is new in a file that grows, is cut short or is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.observe.growing import LONGEST_LINE, Bookmark, is_same, new_lines


class Reader:
    """Reads a file in small parts, and counts what it reads."""

    def __init__(self, path: Path, size: int = 1 << 20) -> None:
        self.path, self.size, self.bytes = path, size, 0

    def __call__(self, position: int) -> bytes:
        with open(self.path, "rb") as file:
            file.seek(position)
            data = file.read(self.size)
        self.bytes += len(data)
        return data


def read(reader: Reader, mark: Bookmark) -> list[str]:
    return [line for lines in new_lines(reader, mark) for line in lines if line]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_each_line_is_returned_once_when_it_is_complete(tmp_path: Path, size: int) -> None:
    path = tmp_path / "events"
    reader, mark = Reader(path, size), Bookmark()
    path.write_text("one\ntwo\nthr")
    assert read(reader, mark) == ["one", "two"]
    assert read(reader, mark) == []
    with open(path, "a") as file:
        file.write("ee\nfour\n")
    assert read(reader, Bookmark.from_list(mark.to_list())) == ["three", "four"]


def test_a_look_at_a_file_that_did_not_grow_reads_a_few_bytes(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    reader, mark = Reader(path), Bookmark()
    assert len(read(reader, mark)) == 100_000
    reader.bytes = 0
    assert is_same(reader, mark)
    assert read(reader, mark) == []
    assert reader.bytes <= 64


@pytest.mark.parametrize("content", ["", "one\n", "ONE\nTWO\n", "one\ntwO\nthree\n"])
def test_a_file_that_was_cut_short_or_replaced_is_recognised(tmp_path: Path, content: str) -> None:
    path = tmp_path / "events"
    path.write_text("one\ntwo\n")
    reader, mark = Reader(path), Bookmark()
    read(reader, mark)
    path.write_text(content)
    assert not is_same(reader, mark)


def test_a_line_of_any_length_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"x" * (5 * LONGEST_LINE) + b"\nlast\n")
    lines = read(Reader(path, LONGEST_LINE // 2), Bookmark())
    assert lines[-1] == "last"
    assert max(map(len, lines)) <= 2 * LONGEST_LINE
