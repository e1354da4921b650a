"""The memory layout of snapshots, and their division into files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cloudtrain.checkpoint.format import tensor_files, tree
from cloudtrain.checkpoint.format.tensor_files import FileGrouping, TensorFile
from cloudtrain.checkpoint.tensors.snapshot import Buffer, Snapshot

MIB = 1 << 20


def taken(buffer: Buffer, state: Any) -> Snapshot:
    snapshot = buffer.snapshot(tree.encode(state)[1])
    snapshot.wait()
    return snapshot


def bytes_of(snapshot: Snapshot, name: str) -> bytes:
    begin, end = snapshot.spans[name]
    return bytes(snapshot.memory[begin:end])


def state_of(step: int) -> dict[str, Any]:
    return {
        "byte": np.full(3, step, dtype=np.uint8),
        "flag": torch.tensor(True),
        "turned": torch.arange(6.0).reshape(2, 3).t() + step,
        "conjugate": torch.tensor([1 + 2j, step - 1j]).conj(),
        "big-endian": np.arange(4, dtype=">f4") + np.float32(step),
        "every other": np.arange(10.0)[::2] + step,
        "read-only": np.broadcast_to(np.float16(step), (5,)),
        "empty": torch.empty(0, 3),
        "number": torch.tensor(step, dtype=torch.int16),
    }


def test_bytes_are_those_of_the_tensors_in_order_without_gaps() -> None:
    buffer = Buffer()
    for step in (1, 2):
        state = state_of(step)
        snapshot = taken(buffer, state)
        for name, value in state.items():
            array = value.resolve_conj().numpy() if isinstance(value, torch.Tensor) else value
            assert bytes_of(snapshot, name) == array.astype(array.dtype.newbyteorder("<")).tobytes(), name
        ends = [end for _, end in snapshot.spans.values()]
        assert [begin for begin, _ in snapshot.spans.values()] == [0, *ends[:-1]]
        assert all(begin % snapshot.specs[name].itemsize == 0 for name, (begin, _) in snapshot.spans.items())


def test_memory_is_reused_until_the_tensors_change() -> None:
    buffer = Buffer()
    first, second = (taken(buffer, state_of(step)) for step in (1, 2))
    assert second.memory is first.memory
    del second
    other = taken(buffer, {"a": torch.ones(2)})
    assert other.memory.nbytes == 8
    assert bytes_of(other, "a") == np.ones(2, dtype=np.float32).tobytes()


def test_a_state_without_tensors() -> None:
    snapshot = taken(Buffer(), {"step": 3})
    assert snapshot.memory.nbytes == 0
    assert FileGrouping().files(snapshot) == []


def contents(file: TensorFile) -> bytes:
    return b"".join(file.data[1:])


def test_adjacent_tensors_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "PART_SIZE", 1024)
    state = {str(index): np.full(8, index, dtype=np.float64) for index in range(6)}
    buffer, grouping = Buffer(), FileGrouping()
    [file] = grouping.files(taken(buffer, state))
    assert len(file.data) == 2  # the header is the other
    for index in (1, 2, 4):
        state[str(index)] += 10
    resting, changing = grouping.files(taken(buffer, state))
    assert [piece.tensor for piece in resting.pieces] == ["0", "3", "5"]
    assert [part.nbytes for part in resting.data[1:]] == [64, 64, 64]
    assert [piece.tensor for piece in changing.pieces] == ["1", "2", "4"]
    assert [part.nbytes for part in changing.data[1:]] == [128, 64]
    assert contents(changing) == b"".join(state[name].tobytes() for name in ("1", "2", "4"))


@pytest.mark.parametrize(
    ("mebibytes", "files"), [(1, 1), (8, 1), (20, 3), (64, 8), (100, 8), (256, 8), (257, 9), (1024, 32)]
)
def test_file_sizes_suit_the_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, mebibytes: int, files: int
) -> None:
    monkeypatch.setattr(tensor_files, "WORKERS", 8)
    specs = {"a": tree.encode({"a": torch.empty(mebibytes * MIB, dtype=torch.uint8)})[1]["a"].spec}
    snapshot = Snapshot(specs, memoryview(bytes(mebibytes * MIB)), {"a": (0, mebibytes * MIB)}, lambda: None)
    sizes = [sum(piece.end - piece.begin for piece in file.pieces) for file in FileGrouping().files(snapshot)]
    assert len(sizes) == files
    assert sum(sizes) == mebibytes * MIB
    assert max(sizes) <= 32 * MIB
