"""Reads the whole copies in the memory of this host, to restore or commit one of them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from cloudtrain import environment
from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.layout import tree_key
from cloudtrain.checkpoint.format.manifest import Manifest, StoredObject
from cloudtrain.checkpoint.memory.files import name_of, read_data, read_headers, remove_header
from cloudtrain.checkpoint.memory.header import SAVE, Header
from cloudtrain.checkpoint.memory.tier import MemoryTier
from cloudtrain.checkpoint.sharded.saver import RankShards, merged
from cloudtrain.checkpoint.store.reader import read_state
from cloudtrain.checkpoint.store.store import CheckpointStore, Written
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import NotFound
from cloudtrain.storage.base import Data

WHERE = "the memory of this host"


class Part(NamedTuple):
    """The copy of one rank."""

    path: Path
    header: Header


class MemoryCheckpoint:
    """One step of which every rank that saves has a copy in memory: ``parts``, in rank order."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.header = parts[0].header

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The document of the whole state. Raises CheckpointError if the parts do not fit together."""
        shards = [RankShards.from_json(part.header.shards) for part in self.parts if part.header.shards]
        return merged(self.header.document, shards) if shards else self.header.document

    @cached_property
    def tree(self) -> bytes:
        return json.dumps(self.document).encode()

    @cached_property
    def manifest(self) -> Manifest:
        step, digest = self.header.step, hashlib.sha256(self.tree).hexdigest()
        tree = StoredObject(tree_key(step, SAVE), len(self.tree), digest)
        files = tuple(stored for part in self.parts for stored in part.header.files)
        return Manifest(step=step, save=SAVE, tree=tree, tensors=files, **self.header.metadata)

    def load(self, into: Any, pool: WorkerPool) -> Any:
        """Like `read_state`."""
        with contextlib.ExitStack() as stack:
            objects: dict[str, Data] = {self.manifest.tree.key: self.tree}
            for part in self.parts:
                files = part.header.tensor_files(stack.enter_context(read_data(part.path)))
                objects |= {stored.key: file.data for stored, file in zip(part.header.files, files)}
            return read_state(_Objects(objects), self.manifest, into, pool)

    def commit(self, store: CheckpointStore, pool: WorkerPool) -> None:
        """Commit this step in ``store``, which has no later one. Raises Damaged, CheckpointError and StorageError."""
        with contextlib.ExitStack() as stack:
            files = [
                part.header.tensor_files(stack.enter_context(read_data(part.path))) for part in self.parts
            ]
            for part, own in zip(self.parts, files):
                digests = pool.map(lambda file: file.sha256.hex(), own)
                for stored, file, digest in zip(part.header.files, own, digests):
                    stored.verify_digest(file.size, digest)
            pending = store.begin(self.header.step)
            if pending is None:
                return

            def write() -> Written:
                step, save = pending.step, pending.save
                objects: list[StoredObject] = []
                for part, own in zip(self.parts, files):
                    rank = part.header.rank if part.header.shards else None
                    objects += store.write_files(step, save, own, store.reusable, pool, rank)
                return Written(self.document, tuple(objects), self.header.metadata)

            store.finish(pending, write)

    def remove(self) -> None:
        """Remove the headers, so that this is no longer a checkpoint."""
        for part in self.parts:
            with contextlib.suppress(OSError):
                remove_header(part.path)


def checkpoints_in(
    folder: Path, damaged: list[tuple[Path, str]] | None = None
) -> dict[str, dict[int, MemoryCheckpoint]]:
    """The checkpoints in a memory folder, by URI and step: only those of which every rank that saves has a whole copy.

    Args:
        damaged: see `read_headers`.
    """
    found: dict[tuple[str, int], list[Part]] = defaultdict(list)
    with contextlib.suppress(OSError):
        for path, header in read_headers(folder, damaged):
            found[header.uri, header.step].append(Part(path, header))
    whole: dict[str, dict[int, MemoryCheckpoint]] = {}
    for (uri, step), parts in found.items():
        parts.sort(key=lambda part: part.header.rank)
        first = parts[0].header
        ranks = [part.header.rank for part in parts]
        same = {
            (header.job, header.attempt, header.world_size, header.shards is None) for _, header in parts
        }  # parts from two attempts do not fit together
        wanted = [*range(first.world_size)] if first.shards else [0]
        if ranks == wanted and len(same) == 1:
            whole.setdefault(uri, {})[step] = MemoryCheckpoint(parts)
    return whole


class MemorySource:
    """The checkpoints of one URI in the memory of this host, to be read like those of a `CheckpointStore`."""

    uri = WHERE

    def __init__(self, tier: MemoryTier | None, world_size: int) -> None:
        damaged: list[tuple[Path, str]] = []
        found = checkpoints_in(tier.folder, damaged).get(tier.uri, {}) if tier else {}
        of_uri = name_of(tier.uri) if tier else ""
        self.committed = tier.committed if tier else None
        """The newest step known to be in the storage: see `read_committed`."""
        self._damaged = [(path, problem) for path, problem in damaged if path.name.startswith(of_uri)]
        job = environment.job_name()
        self._found = {
            step: checkpoint
            for step, checkpoint in found.items()
            if (checkpoint.header.world_size, checkpoint.header.job) == (world_size, job)
        }

    def remove_damaged(self) -> list[str]:
        """Remove the copies whose headers are damaged. Returns a sentence about each, without a full stop."""
        removed = []
        for path, problem in self._damaged:
            with contextlib.suppress(OSError):
                remove_header(path)
                removed.append(f"a copy in {WHERE} is damaged: {problem}")
        return removed

    def steps(self) -> tuple[int, ...]:
        """The steps, ascending."""
        return tuple(sorted(self._found))

    def manifest(self, step: int) -> Manifest:
        return self._found[step].manifest

    def metrics(self, step: int) -> Mapping[str, float]:
        """The metrics of ``step``."""
        return self._found[step].manifest.decode_metrics()

    def load(self, step: int, into: Any, pool: WorkerPool) -> Any:
        """Raises Damaged, or CheckpointError if ``into`` does not fit."""
        if step not in self._found:
            raise Damaged(f"step {step} is not in {WHERE}")
        try:
            return self._found[step].load(into, pool)
        except Damaged as error:
            self.mark_damaged(step)
            raise Damaged(f"the copy of step {step} in {WHERE} is damaged: {error.message}") from error

    def mark_damaged(self, step: int) -> None:
        """Remove ``step``, so that it is not restored again."""
        if step in self._found:
            self._found[step].remove()


class _Objects:
    """The reading half of a `Store`, for objects in memory."""

    uri = WHERE
    is_memory = True

    def __init__(self, objects: Mapping[str, Data]) -> None:
        self._objects = objects

    def open(self, key: str) -> BinaryIO:
        data = self._objects.get(key)
        if data is None:
            raise NotFound(f"{key} is not in {WHERE}")
        return cast("BinaryIO", _Stream([memoryview(data)] if isinstance(data, bytes) else data))


class _Stream(io.RawIOBase):
    """Reads pieces of memory, one after the other."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces: Iterator[memoryview] = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        while not self._rest:
            following = next(self._pieces, None)
            if following is None:
                return 0
            self._rest = following
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
