"""Packed objects: unpacked only as they were packed, for the same purpose, with the same key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.distributed import CollectiveError
from cloudtrain.distributed._objects import HEAD_BYTES, LARGE_BYTES, Objects

OURS = Objects(b"k" * 32)
SMALL: Any = {"lr": 0.1, "names": ["a", "ü"]}
LARGE = bytes(range(256)) * (LARGE_BYTES // 256)


class Evil:
    """Unpickled, it creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("obj", [None, SMALL, LARGE], ids=["none", "small", "large"])
def test_what_is_packed_is_unpacked(obj: object) -> None:
    assert Objects(b"k" * 32).unpack(bytes(OURS.pack(obj, "it")), "it") == obj


def test_several_objects_one_after_the_other() -> None:
    packed = b"".join(bytes(OURS.pack(obj, name)) for obj, name in ((SMALL, "a"), (LARGE, "b"), (None, "c")))
    assert OURS.unpack_all(packed, ["a", "b", "c"]) == [SMALL, LARGE, None]
    for purposes in (["a", "b"], ["a", "b", "c", "d"], ["b", "a", "c"]):
        with pytest.raises(
            CollectiveError, match="refused, because no rank of this job sent it as it arrived"
        ):
            OURS.unpack_all(packed, purposes)


def test_every_changed_byte_is_noticed() -> None:
    packed = bytes(OURS.pack(SMALL, "it"))
    for position in range(len(packed)):
        changed = bytearray(packed)
        changed[position] ^= 0x40
        with pytest.raises(CollectiveError, match="it: refused"):
            OURS.unpack(changed, "it")
    for length in range(len(packed)):
        with pytest.raises(CollectiveError):
            OURS.unpack(packed[:length], "it")


@pytest.mark.parametrize("rest", [0, LARGE_BYTES], ids=["small", "large"])
def test_nothing_of_a_forged_object_is_executed(tmp_path: Path, rest: int) -> None:
    forged = Objects().pack((Evil(tmp_path / "executed"), bytes(rest)), "it")
    with pytest.raises(CollectiveError):
        OURS.unpack(forged, "it")
    # one that a rank packed, followed by one that no rank packed
    with pytest.raises(CollectiveError):
        OURS.unpack_all(bytes(OURS.pack(Evil(tmp_path / "executed"), "a")) + bytes(forged), ["a", "it"])
    assert list(tmp_path.iterdir()) == []


def test_an_object_is_good_for_its_purpose_only() -> None:
    packed = OURS.pack(SMALL, "broadcast_object of rank 1")
    with pytest.raises(CollectiveError):
        OURS.unpack(packed, "broadcast_object of rank 2")


def test_the_memory_is_not_copied() -> None:
    packed = OURS.pack(LARGE, "it")
    assert not packed.readonly
    assert HEAD_BYTES < len(packed) - len(LARGE) < HEAD_BYTES + 40
