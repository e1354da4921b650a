"""Pipe mode: what comes out of the named pipes of a channel."""

from __future__ import annotations

import gzip
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.runtime.inputs.pipes import PipeChannel
from cloudtrain.storage import ObjectInfo, list_folder

Open = Callable[..., PipeChannel]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(name.encode() * 3)
    return folder


@pytest.fixture
def open_pipes(data: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens the pipes of the channel ``train`` in ``tmp_path``."""
    opened: list[PipeChannel] = []

    def start(
        document: dict[str, Any] | None = None,
        entries: list[ObjectInfo] | None = None,
        errors: list[Exception] | None = None,
    ) -> PipeChannel:
        report = (errors if errors is not None else []).append
        pipes = PipeChannel(
            tmp_path / "train", data.as_uri(), entries or list_folder(data), document or {}, report
        )
        opened.append(pipes)
        pipes.start()
        return pipes

    yield start
    for pipes in opened:
        pipes.stop()
    assert not list(tmp_path.glob("train_*"))


def wait_until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_each_epoch_has_a_pipe_with_all_objects(open_pipes: Open, tmp_path: Path) -> None:
    open_pipes()
    for epoch in range(3):
        assert (tmp_path / f"train_{epoch}").read_bytes() == b"aaabbbccc"


def test_a_large_object_is_downloaded_whole(open_pipes: Open, data: Path, tmp_path: Path) -> None:
    content = os.urandom(5_000_000)
    (data / "b").write_bytes(content)
    open_pipes()
    assert (tmp_path / "train_0").read_bytes() == b"aaa" + content + b"ccc"


def test_a_pipe_can_be_opened_once(open_pipes: Open, data: Path, tmp_path: Path) -> None:
    """A second reader would get a part of the data, and the first one the rest."""
    (data / "b").write_bytes(bytes(5_000_000))
    open_pipes()
    with open(tmp_path / "train_0", "rb") as first:
        assert first.read(1) == b"a"
        with pytest.raises(FileNotFoundError):
            os.stat(tmp_path / "train_0")
        assert len(first.read()) == 5_000_005


def test_a_reader_that_closes_early_ends_its_epoch(open_pipes: Open, data: Path, tmp_path: Path) -> None:
    (data / "b").write_bytes(bytes(5_000_000))
    open_pipes()
    with open(tmp_path / "train_0", "rb") as pipe:
        assert pipe.read(3) == b"aaa"
    assert len((tmp_path / "train_1").read_bytes()) == 5_000_006


def test_a_pipe_that_is_not_opened_delays_nothing(open_pipes: Open) -> None:
    began = time.monotonic()
    open_pipes().stop()
    assert time.monotonic() - began < 60


def test_a_reader_that_stops_reading_delays_nothing(open_pipes: Open, data: Path, tmp_path: Path) -> None:
    (data / "b").write_bytes(bytes(5_000_000))
    pipes = open_pipes()
    with open(tmp_path / "train_0", "rb") as pipe:
        pipe.read(1)
        pipes.stop()


def test_shuffling_gives_each_epoch_its_own_order_and_each_run_the_same(
    open_pipes: Open, tmp_path: Path
) -> None:
    runs = []
    for _ in range(2):
        pipes = open_pipes({"ShuffleConfig": {"Seed": 7}})
        runs.append([(tmp_path / f"train_{epoch}").read_bytes() for epoch in range(6)])
        pipes.stop()
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1
    assert {bytes(sorted(run)) for run in runs[0]} == {b"aaabbbccc"}


def test_gzip_is_uncompressed(open_pipes: Open, data: Path, tmp_path: Path) -> None:
    for path in data.iterdir():
        path.write_bytes(gzip.compress(path.read_bytes()))
    open_pipes({"CompressionType": "Gzip"})
    assert (tmp_path / "train_0").read_bytes() == b"aaabbbccc"


def test_objects_become_records(open_pipes: Open, tmp_path: Path) -> None:
    """The format of MXNet's RecordIO, as `sagemaker.amazon.common.read_recordio` reads it."""
    open_pipes({"RecordWrapperType": "RecordIO"})
    stream, records = (tmp_path / "train_0").read_bytes(), []
    while stream:
        magic, length = struct.unpack_from("<II", stream)
        assert magic == 0xCED7230A
        records.append(stream[8 : 8 + length])
        stream = stream[8 + (length + 3) // 4 * 4 :]
    assert records == [b"aaa", b"bbb", b"ccc"]


@pytest.mark.parametrize(
    ("document", "entries", "message"),
    [
        ({}, [ObjectInfo("a", 3), ObjectInfo("gone", 3)], "gone does not exist"),
        ({"CompressionType": "Gzip"}, None, "a is not a valid gzip file"),
    ],
)
def test_data_that_cannot_be_read_is_reported_and_does_not_look_complete(
    open_pipes: Open, tmp_path: Path, document: Any, entries: Any, message: str
) -> None:
    errors: list[Exception] = []
    open_pipes(document, entries, errors)
    descriptor = os.open(tmp_path / "train_0", os.O_RDONLY)
    try:
        wait_until(lambda: errors)
        os.set_blocking(descriptor, False)
        if entries:
            assert os.read(descriptor, 100) == b"aaa"
        with pytest.raises(BlockingIOError):  # no end of file
            os.read(descriptor, 100)
    finally:
        os.close(descriptor)
    assert message in str(errors[0])


def test_pipes_of_an_attempt_that_was_killed_are_replaced(open_pipes: Open, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train_0")
    os.mkfifo(tmp_path / "train_5")
    os.mkfifo(tmp_path / "train_other_5")  # of another channel
    open_pipes()
    assert (tmp_path / "train_0").read_bytes() == b"aaabbbccc"
    assert not (tmp_path / "train_5").exists()
    (tmp_path / "train_other_5").unlink()
