"""The copies in memory of one `Checkpointer`: which slot the next save uses, and when its copy is whole."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from cloudtrain import environment
from cloudtrain._system.files import READ_REGULAR, lock, open_regular, unlock
from cloudtrain._system.memory import shared_file
from cloudtrain.checkpoint.failed_saves import warn
from cloudtrain.checkpoint.memory.committed import read_committed, write_committed
from cloudtrain.checkpoint.memory.files import (
    OFF,
    VARIABLE,
    data_path,
    header_path,
    memory_folder,
    read_headers,
    remove_header,
    slot_path,
    space_in,
    write_whole,
)
from cloudtrain.checkpoint.memory.header import Header
from cloudtrain.checkpoint.memory.small_file_system import advice_for
from cloudtrain.checkpoint.same_step import on_several_hosts
from cloudtrain.checkpoint.sharded.saver import RankShards
from cloudtrain.checkpoint.store.attempts import Attempt
from cloudtrain.checkpoint.store.store import PreparedSave
from cloudtrain.checkpoint.tensors.snapshot import Buffer
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.contract.rank import LauncherEnv, with_rank

SLOTS = 3
"""Copies per rank. The third is used only while one is uploaded, because the newest whole copy stays."""


class SlotBuffer(Buffer):
    """Memory for one copy in the folder of the host; the memory of this process if there is no space."""

    def __init__(self, tier: MemoryTier, path: Path) -> None:
        super().__init__()
        self.path = path
        self.step = -1
        """The step of the whole copy in it; -1 if there is none."""
        self.is_shared = True
        self._tier = tier
        self._descriptor = -1

    def begin(self) -> bool:
        """Lock the slot and discard its copy. Returns False if another process reads it. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | (READ_REGULAR & ~os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
        descriptor = open_regular(data_path(self.path), flags, 0o600)
        if not lock(descriptor, wait=False):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        remove_header(self.path)
        self.step = -1
        if os.fstat(descriptor).st_size < self.nbytes:
            self.free()  # the runtime has reclaimed it
        return True

    def end(self) -> None:
        """Unlock the slot for other processes."""
        if self._descriptor >= 0:
            unlock(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _allocate(self, nbytes: int) -> mmap.mmap:
        if self.is_shared:
            try:
                held = os.fstat(self._descriptor).st_size
                self._tier.check_space(nbytes - held)
                os.ftruncate(self._descriptor, min(held, nbytes))
                return shared_file(self._descriptor, nbytes)
            except OSError as error:
                self.is_shared = False
                self._tier.give_up(error.strerror or str(error))
        return super()._allocate(nbytes)


class MemoryTier:
    """The copies of one `Checkpointer` in ``folder``."""

    def __init__(self, folder: Path, uri: str, *, sharers: bool) -> None:
        self.folder, self.uri = folder, uri
        self._rank = environment.rank()
        environ = with_rank(os.environ)
        local_size = environ.get(LauncherEnv.detect(environ).local_size, "")
        self._sharers = int(local_size) if sharers and local_size.isdecimal() else 1
        self._slots: list[SlotBuffer] = []
        self._busy: set[SlotBuffer] = set()
        self._given_up = ""
        self._has_begun = False
        """Whether this process has made a copy, and has removed the later steps of earlier processes."""
        self._restored: int | None = None
        """The restored step. Copies of later steps stay until the first save: this process may only evaluate."""
        paths = {slot_path(folder, uri, self._rank, number): number for number in range(SLOTS)}
        with contextlib.suppress(OSError):
            for path, header in read_headers(folder):
                if path in paths:
                    while len(self._slots) <= paths[path]:
                        self._slots.append(
                            SlotBuffer(self, slot_path(folder, uri, self._rank, len(self._slots)))
                        )
                    self._slots[paths[path]].step = header.step

    @classmethod
    def of(cls, uri: str, *, sharers: bool) -> MemoryTier | None:
        """None if this process has no memory folder, or if no host would have a whole copy.

        Args:
            sharers: whether all ranks of this host save copies of about the same size.
        """
        folder = memory_folder(os.environ)
        if sharers and on_several_hosts():
            if folder and environment.rank() == 0:
                warn(
                    "checkpoints are not kept in memory: the state is sharded over several hosts, and none has all of "
                    f"it. If a rank or a host fails, the training resumes from the last one in {uri}"
                )
            return None
        if folder:
            return cls(folder, uri, sharers=sharers)
        why = os.environ.get(VARIABLE) or OFF
        if why != OFF and environment.rank() == 0:
            warn(f"checkpoints are not kept in memory: {why}")
        return None

    @property
    def is_given_up(self) -> bool:
        """Whether there is no space for copies."""
        return bool(self._given_up)

    def take(self, step: int) -> SlotBuffer | None:
        """A slot for the copy of ``step``; None if there is none. Never the newest whole copy."""
        if not self._has_begun:
            self._has_begun = True
            self.resume_from(step - 1 if self._restored is None else self._restored)
        if not self._given_up and space_in(self.folder) < 0:
            self.give_up("the memory of this host is nearly full")
        newest = max(self._slots, key=lambda slot: slot.step, default=None)
        try:
            for slot in self._slots:
                kept = slot is newest and slot.step >= 0
                if not self._given_up and not kept and slot not in self._busy and slot.begin():
                    self._busy.add(slot)
                    return slot
            if not self._given_up and len(self._slots) < SLOTS and self._has_space_for_next:
                slot = SlotBuffer(self, slot_path(self.folder, self.uri, self._rank, len(self._slots)))
                self._slots.append(slot)
                if slot.begin():
                    self._busy.add(slot)
                    return slot
        except OSError as error:
            self.give_up(error.strerror or str(error))
        return None

    @property
    def _has_space_for_next(self) -> bool:
        return len(self._slots) < SLOTS - 1 or self._slots[0].nbytes <= space_in(self.folder) // self._sharers

    def release(self, slot: SlotBuffer) -> None:
        """Unlock a slot whose copy is no longer needed."""
        slot.end()
        self._busy.discard(slot)
        if self._given_up:
            self._remove(slot)

    def seal(
        self, slot: SlotBuffer, prepared: PreparedSave, shards: RankShards | None, pool: WorkerPool | None
    ) -> None:
        """Hash the copy, and make it whole, if it is in memory."""
        if not slot.is_shared or self._given_up:
            return
        if pool:
            pool.map(lambda file: file.sha256, prepared.files)
        attempt = Attempt.of(os.environ)
        header = Header(
            uri=self.uri,
            job=environment.job_name(),
            attempt=attempt.mark if attempt else 0,
            step=prepared.step,
            rank=self._rank,
            world_size=prepared.metadata["world_size"],
            document=prepared.document,
            metadata=prepared.metadata,
            specs=slot.specs,
            files=Header.stored(prepared.step, self._rank if shards else None, prepared.files),
            shards=shards.to_json() if shards else None,
        )
        try:
            write_whole(header_path(slot.path), header.to_bytes())
        except OSError as error:
            self.give_up(error.strerror or str(error))
        else:
            slot.step = prepared.step

    @property
    def committed(self) -> int | None:
        """See `read_committed`."""
        return read_committed(self.folder, self.uri)

    def found_committed(self, step: int) -> None:
        """Record that ``step`` is committed in the storage; -1 if nothing is."""
        known = self.committed
        if self._rank == 0 and not self._given_up and (known is None or known < step):
            write_committed(self.folder, self.uri, step)

    def resume_from(self, step: int) -> None:
        """Continue the training after ``step``, and discard the copies of later steps, which it will compute again."""
        self._restored = step
        known = self.committed
        if self._has_begun and self._rank == 0 and known is not None and known > step:
            write_committed(self.folder, self.uri, None)
        for slot in self._slots if self._has_begun else ():
            if slot.step > step:
                slot.step = -1
                with contextlib.suppress(OSError):
                    remove_header(slot.path)

    def close(self) -> None:
        """Free the memory of this process. The copies stay."""
        for slot in self._slots:
            slot.free()

    def check_space(self, nbytes: int) -> None:
        """Raises OSError if these bytes do not fit."""
        free = space_in(self.folder) // self._sharers
        if nbytes > free:
            advice = advice_for(self.folder, nbytes * self._sharers, os.environ)
            needs = f"a copy needs {nbytes >> 20} MB more, and {max(free, 0) >> 20} MB are free"
            raise OSError(0, f"{needs}. {advice}" if advice else needs)

    def give_up(self, why: str) -> None:
        """Remove the copies, and save to the storage only from now on."""
        if self._given_up:
            return
        self._given_up = why
        warn(
            f"checkpoints are not kept in memory: {why}. If this process fails, the training resumes from the last one "
            f"in {self.uri}"
        )
        for slot in self._slots:
            if slot not in self._busy:
                self._remove(slot)
        if self._rank == 0:
            write_committed(self.folder, self.uri, None)

    def _remove(self, slot: SlotBuffer) -> None:
        slot.step = -1
        slot.free()
        for path in (header_path(slot.path), data_path(slot.path)):
            with contextlib.suppress(OSError):
                path.unlink()
