"""The checkpoints of a run in one store: committing and reading them.

Two rules keep independent writers apart. First, a manifest is only ever created, never replaced: of two saves of one
step, one is committed and the other never can be. Second, steps only increase: a step that appears without having
been saved here is from another writer, and makes saving fail. Earlier attempts of the same job are kept out by
`attempts`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.failed_saves import warn
from cloudtrain.checkpoint.format.layout import manifest_key, save_prefix, tensors_key, tree_key
from cloudtrain.checkpoint.format.manifest import TOMBSTONE, Manifest, StoredObject
from cloudtrain.checkpoint.format.tensor_files import TensorFile
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.attempts import Attempt, Attempts
from cloudtrain.checkpoint.store.catalog import Catalog, Expiry, Listing
from cloudtrain.checkpoint.store.reader import read_state
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, CloudtrainError
from cloudtrain.observe import beat
from cloudtrain.storage import open_store
from cloudtrain.storage.base import Store
from cloudtrain.storage.retry_policy import Patience, current, using

_log = logging.getLogger("cloudtrain.checkpoint")


@dataclass(frozen=True)
class PreparedSave:
    """The content of one call of ``save``, ready to be written."""

    step: int
    document: Mapping[str, Any]
    files: Sequence[TensorFile]
    metadata: Mapping[str, Any]
    """The manifest's fields about the run: see `run_metadata`."""


@dataclass(frozen=True)
class PendingSave:
    """A save that has begun and is not committed yet."""

    step: int
    save: str
    """Unique to this save."""
    before: Listing
    """The store's contents when it began."""


class Written(NamedTuple):
    """The tensors of a save, which are written, and the contents of its tree and its manifest."""

    document: Mapping[str, Any]
    tensors: tuple[StoredObject, ...]
    metadata: Mapping[str, Any]


class Source(Protocol):
    """Checkpoints to restore from."""

    @property
    def uri(self) -> str: ...

    def steps(self) -> tuple[int, ...]: ...

    def manifest(self, step: int) -> Manifest: ...

    def metrics(self, step: int) -> Mapping[str, float]: ...

    def load(self, step: int, into: Any, pool: WorkerPool) -> Any: ...

    def mark_damaged(self, step: int) -> None: ...


class CheckpointStore:
    """Checkpoints in ``store``, kept according to ``retention``. For one thread at a time.

    Args:
        attempt: the attempt that saves; None outside a job. Methods raise CheckpointError once a later one has taken
            over.
    """

    def __init__(self, store: Store, retention: RetentionPolicy, attempt: Attempt | None) -> None:
        self._store = store
        self._catalog = Catalog(store)
        self._attempts = Attempts(self._catalog, attempt)
        self._expiry = Expiry(self._catalog, retention)
        self._known: set[int] | None = None
        """The committed steps seen so far; None before the first save."""
        self._own: set[int] = set()
        """The steps that were saved or restored here."""
        self._damaged: set[int] = set()
        self._base: Manifest | None = None
        self._unconfirmed: Manifest | None = None
        """A manifest whose creation failed without an answer: it may exist."""

    @classmethod
    def at(cls, uri: str | os.PathLike[str], retention: RetentionPolicy) -> CheckpointStore:
        """The store at a URI or a path, for this process. Raises CheckpointError for other values."""
        text: Any = os.fspath(uri) if isinstance(uri, (str, os.PathLike)) else None
        if not isinstance(text, str):
            problem = f"{uri!r} is neither a URI nor a path"
            raise CheckpointError(problem, hint="Give s3://bucket/prefix, or a folder.")
        full = text if "://" in text else Path(text).absolute().as_uri()
        return cls(open_store(full), retention, Attempt.of(os.environ))

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def base(self) -> Manifest | None:
        """The newest checkpoint known to be intact, because it was written or read here."""
        return self._base

    @property
    def reusable(self) -> Sequence[StoredObject]:
        """The tensor files of `base`, which need not be written again."""
        return self._base.tensors if self._base else ()

    def steps(self) -> tuple[int, ...]:
        """The committed steps, ascending."""
        self._attempts.take_over(to_save=False)
        committed = self._catalog.listing().committed
        strays = self._strays(committed)
        return tuple(step for step in committed if step not in strays)

    def is_there(self, step: int) -> bool:
        """Whether ``step`` is committed now, by any writer."""
        manifest = self._catalog.store.stat(manifest_key(step))
        return manifest is not None and manifest.size != len(TOMBSTONE)

    def has(self, step: int) -> bool:
        """Whether ``step`` was saved or restored here, and was there at the last save."""
        return step in self._own

    def manifest(self, step: int) -> Manifest:
        """Raises Damaged, or CheckpointError if a newer cloudtrain wrote it."""
        return self._catalog.manifest(step)

    def metrics(self, step: int) -> Mapping[str, float]:
        """The metrics of ``step``; empty if its manifest is not readable."""
        return self._catalog.metrics(step)

    def load(self, step: int, into: Any, pool: WorkerPool) -> Any:
        """The verified state of ``step``. Raises Damaged, or CheckpointError if ``into`` does not fit."""
        try:
            manifest = self._catalog.read_manifest(step)
            self._catalog.add(manifest)
            return read_state(self._store, manifest, into, pool)
        except Damaged as error:
            self.mark_damaged(step)
            raise Damaged(f"checkpoint {step} in {self.uri} is damaged: {error.message}") from error

    def mark_damaged(self, step: int) -> None:
        """Allow another save to replace ``step``."""
        self._damaged.add(step)

    def resume_from(self, step: int) -> None:
        """Continue after ``step``, if it is here; it was restored from here or from a copy elsewhere."""
        if self._attempts.strays([step]):
            return
        with contextlib.suppress(Damaged):
            self._base = self._catalog.manifest(step)
            self._own.add(step)

    def commit(self, prepared: PreparedSave, pool: WorkerPool) -> None:
        """Save and commit, unless the step was saved or restored here already.

        Raises:
            CheckpointError: another run writes here, or a later step is committed.
            StorageError: the storage failed; earlier checkpoints are unchanged.
        """
        pending = self.begin(prepared.step)
        if pending is None:
            return

        def write() -> Written:
            files = self.write_files(pending.step, pending.save, prepared.files, self.reusable, pool)
            return Written(prepared.document, files, prepared.metadata)

        self.finish(pending, write)
        self.delete_expired(pending)

    def begin(self, step: int) -> PendingSave | None:
        """The first part of `commit`; None if the step was saved or restored here already."""
        self._attempts.take_over(to_save=True)
        before = self._without_strays(self._catalog.listing())
        unconfirmed = self._unconfirmed
        if unconfirmed and unconfirmed.step in before.committed and self._catalog.contains(unconfirmed):
            self._accept(unconfirmed)
        self._unconfirmed = None
        self._own.intersection_update(before.committed)
        if step in self._own:
            return None
        self._check_writers(step, before.committed)
        if self._base and not before.has_all([stored.key for stored in self._base.tensors]):
            self._base = None  # deleted, for example by a lifecycle rule of the bucket: do not refer to it
        return PendingSave(step, uuid.uuid4().hex[:16], before)

    def write_files(
        self,
        step: int,
        save: str,
        files: Sequence[TensorFile],
        reusable: Iterable[StoredObject],
        pool: WorkerPool,
        rank: int | None = None,
    ) -> tuple[StoredObject, ...]:
        """Write the files that are not among ``reusable``; returns the objects of all of them."""
        stored = {(known.sha256, known.size): known for known in reusable}

        def put(part: tuple[int, TensorFile]) -> StoredObject:
            number, file = part
            digest = file.sha256.hex()
            if (digest, file.size) in stored:
                return stored[digest, file.size]
            new = StoredObject(tensors_key(step, save, number, rank), file.size, digest, file.pieces)
            self._store.write(new.key, file.data, sha256=file.sha256)
            beat()
            return new

        return tuple(pool.map(put, enumerate(files)))

    def finish(self, pending: PendingSave, write: Callable[[], Written]) -> None:
        """The second part of `commit`: write the objects of the save, then the manifest, which commits it.

        Args:
            write: writes the tensors. If it raises, the objects of the save are removed.
        """
        try:
            written = write()
            data = json.dumps(written.document).encode()
            digest = hashlib.sha256(data).hexdigest()
            tree = StoredObject(tree_key(pending.step, pending.save), len(data), digest)
            self._store.write(tree.key, data)
            manifest = Manifest(
                step=pending.step,
                save=pending.save,
                tree=tree,
                tensors=written.tensors,
                run=self._attempts.run,
                attempt=self._attempts.number,
                **written.metadata,
            )
            self._attempts.check()
        except BaseException:
            self._discard(pending.step, pending.save)
            raise
        if pending.step in self._damaged or pending.step in pending.before.tombstones:
            self._catalog.delete_manifests([pending.step])
        self._known = set(pending.before.committed)
        # If create raises, the manifest may exist or not, so its objects must stay.
        self._unconfirmed = manifest
        if self._create(manifest):
            self._accept(manifest)
            self._unconfirmed = None
            return
        self._unconfirmed = None
        self._discard(manifest.step, manifest.save)
        raise _other_writer(f"another run has saved step {manifest.step} in {self.uri} at the same time")

    def delete_expired(self, pending: PendingSave) -> None:
        """Delete expired checkpoints and their objects after `finish`. A failure is only logged."""
        try:
            self._attempts.check()
            self._expiry.delete(pending.before, pending.step, self._damaged)
        except CloudtrainError as error:  # the new checkpoint is safe: no reason to end the training
            _log.warning("old checkpoints in %s cannot be removed and are kept: %s", self.uri, error)

    def _create(self, manifest: Manifest) -> bool:
        """Commit ``manifest``. Returns False if its step has another one."""
        while not self._store.create(manifest_key(manifest.step), manifest.to_bytes()):
            # A retried request may find the manifest that its first, unanswered try created.
            if self._catalog.contains(manifest):
                return True
            if not self._remove(self._attempts.strays([manifest.step], [manifest.step])):
                return False
        return True

    def _without_strays(self, found: Listing) -> Listing:
        """Remove the steps that an earlier attempt of this job committed after this one had taken over."""
        strays = self._remove(self._strays(found.committed))
        return replace(found, committed=tuple(step for step in found.committed if step not in strays))

    def _strays(self, committed: Collection[int]) -> frozenset[int]:
        appeared = set() if self._known is None else {*committed} - self._known
        return self._attempts.strays(committed, appeared)

    def _remove(self, strays: frozenset[int]) -> frozenset[int]:
        for step in sorted(strays):
            warn(
                f"an earlier attempt of this job, which was given up, has saved step {step} in {self.uri} in the "
                "meantime: it is removed"
            )
        self._catalog.delete_manifests(strays)
        return strays

    def _check_writers(self, step: int, committed: Collection[int]) -> None:
        unknown = set() if self._known is None else set(committed) - self._known
        if unknown:
            raise _other_writer(f"another run has saved step {max(unknown)} in {self.uri} in the meantime")
        later = [other for other in committed if other >= step and other not in self._damaged]
        if later:
            raise CheckpointError(
                f"step {step} cannot be saved in {self.uri}, which already has step {later[-1]}",
                hint="Call restore() first to continue from that step. A run that starts over, continues from "
                "an earlier step, or runs at the same time as another needs a different uri.",
            )

    def _accept(self, manifest: Manifest) -> None:
        """Record ``manifest`` as committed by this process, once the objects that it reuses are safe.

        Deletion removes the manifests of expired checkpoints first, then collects what the remaining manifests
        refer to, then deletes the rest. So if the manifest whose objects are reused still exists now, that
        deletion will see the new manifest and keep them.
        """
        reuses = any(not stored.key.startswith(manifest.own_prefix) for stored in manifest.tensors)
        if reuses and self._base and not self._catalog.contains(self._base):
            self._base = None
            self._attempts.check()  # the later one removes it, and may have saved the step itself
            self._catalog.delete_manifests([manifest.step])
            self._discard(manifest.step, manifest.save)
            raise _other_writer(f"another run has deleted checkpoints in {self.uri} in the meantime")
        self._base = manifest
        self._catalog.add(manifest)
        self._own.add(manifest.step)
        self._damaged.discard(manifest.step)
        self._known = {*(self._known or ()), manifest.step}

    def _discard(self, step: int, save: str) -> None:
        """Remove the objects of a failed save, as far as the storage still responds. The rest become orphans."""
        if current().ended:
            return
        with contextlib.suppress(CloudtrainError), using(Patience(0)):
            self._store.delete([found.key for found in self._store.list(save_prefix(step, save))])


def _other_writer(message: str) -> CheckpointError:
    return CheckpointError(message, hint="Two runs save to one uri: give each its own.")
