"""One store with the checkpoints of a run: what is committed there, and how more comes to it.

Writers that know nothing of each other are kept apart by two rules. A manifest is created only where nothing
is: of two saves of one step one is committed, and the other can never be. And steps only go up: a step that
appears and was not saved here is another writer's, which ends the saving.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.checkpoint import _read, _tree
from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._keep import Keep
from cloudtrain.checkpoint._listing import Listing
from cloudtrain.checkpoint._manifest import GIVEN_UP, Manifest, StoredObject
from cloudtrain.checkpoint._objects import TensorFile
from cloudtrain.checkpoint.layout import manifest_key, save_prefix, tensors_key, tree_key
from cloudtrain.errors import CheckpointError, CloudtrainError, NotFound
from cloudtrain.observe import beat
from cloudtrain.storage.base import Store

_log = logging.getLogger("cloudtrain.checkpoint")


@dataclass(frozen=True)
class Save:
    """What one call of ``save`` commits."""

    step: int
    document: Mapping[str, Any]
    files: Sequence[TensorFile]
    about: Mapping[str, Any]
    """The fields of the manifest that tell of the run."""


@dataclass(frozen=True)
class Draft:
    """A save that is under way: none stands in its way."""

    step: int
    name: str
    """Unique to this save."""
    before: Listing
    """What was there when it began."""


class Place:
    """Checkpoints in ``store``, of which ``keep`` says which stay. For one thread at a time."""

    def __init__(self, store: Store, keep: Keep) -> None:
        self._store = store
        self._keep = keep
        self._known: set[int] | None = None
        """The committed steps that have been seen."""
        self._own: set[int] = set()
        """The steps that were saved or restored here."""
        self._damaged: set[int] = set()
        self._base: Manifest | None = None
        """The newest checkpoint whose bytes are known to be whole: they were written or read here."""
        self._unsure: Manifest | None = None
        """One that was sent, and no answer came: it may be there."""
        self._manifests: dict[int, Manifest] = {}

    @property
    def uri(self) -> str:
        return self._store.uri

    def steps(self) -> tuple[int, ...]:
        """The committed steps, ascending."""
        return Listing.of(self._store).committed

    def has(self, step: int) -> bool:
        """Whether ``step`` was saved or restored here, and was there when last looked at."""
        return step in self._own

    def metrics(self, step: int) -> Mapping[str, float]:
        """The metrics of ``step``; none where its manifest is not readable."""
        try:
            metrics: Mapping[str, float] = _tree.decode({"tree": self.manifest(step).metrics}, {})
        except CheckpointError:
            return {}
        return metrics

    def manifest(self, step: int) -> Manifest:
        """Raises Damaged, or CheckpointError if a newer cloudtrain wrote it."""
        if step not in self._manifests:
            self._manifests[step] = self._read_manifest(step)
        return self._manifests[step]

    def load(self, step: int, into: Any, crew: Crew) -> Any:
        """The state of ``step``, verified. Raises Damaged, or CheckpointError if ``into`` does not fit."""
        try:
            manifest = self._manifests[step] = self._read_manifest(step)
            return _read.read(self._store, manifest, into, crew)
        except Damaged as error:
            self.distrust(step)
            raise Damaged(f"checkpoint {step} in {self.uri} is damaged: {error.message}") from error

    def distrust(self, step: int) -> None:
        """``step`` is damaged: another save may take its place."""
        self._damaged.add(step)

    def adopt(self, step: int) -> None:
        """Go on from ``step``, if it is here and was restored from here or from its copy elsewhere."""
        with contextlib.suppress(Damaged):
            self._base = self.manifest(step)
            self._own.add(step)

    def commit(self, save: Save, crew: Crew) -> None:
        """Make ``save`` exist, unless it does.

        Raises:
            CheckpointError: another writer is here, or the step is not the newest.
            StorageError: the storage failed; the checkpoints before are as they were.
        """
        draft = self.begin(save.step)
        if draft is None:
            return
        with self.discarding(draft):
            tensors = self.write(draft.step, draft.name, save.files, self.reusable, crew)
            manifest = self.complete(draft, save.document, tensors, save.about)
        self.create(manifest, draft)
        self.tidy(draft)

    def begin(self, step: int) -> Draft | None:
        """The first part of `commit`; None where the step was saved or restored here."""
        before = Listing.of(self._store)
        if self._unsure and self._unsure.step in before.committed and self._stands(self._unsure):
            self._settle(self._unsure)
        self._unsure = None
        self._own.intersection_update(before.committed)
        if step in self._own:
            return None
        self._check_writers(step, before.committed)
        if self._base and not {entry.key for entry in self._base.tensors} <= set(before.objects):
            self._base = None  # somebody has deleted them, or a rule of the bucket: they are not named again
        return Draft(step, uuid.uuid4().hex[:16], before)

    @property
    def base(self) -> Manifest | None:
        """The newest checkpoint that was written or read here."""
        return self._base

    @property
    def reusable(self) -> Sequence[StoredObject]:
        """The tensors of the base: they need not be written again."""
        return self._base.tensors if self._base else ()

    def write(
        self,
        step: int,
        name: str,
        files: Sequence[TensorFile],
        reusable: Iterable[StoredObject],
        crew: Crew,
        rank: int | None = None,
    ) -> tuple[StoredObject, ...]:
        """Write those files that are not among ``reusable``, below the save ``name``; returns all of them."""
        stored = {(entry.sha256, entry.size): entry for entry in reusable}

        def put(part: tuple[int, TensorFile]) -> StoredObject:
            number, file = part
            digest = file.sha256.hex()
            if (digest, file.size) in stored:
                return stored[digest, file.size]
            key = tensors_key(step, name, number, rank)
            entry = StoredObject(key, file.size, digest, file.pieces)
            self._store.write(entry.key, file.data, sha256=file.sha256)
            beat()
            return entry

        return tuple(crew.map(put, enumerate(files)))

    def complete(
        self,
        draft: Draft,
        document: Mapping[str, Any],
        tensors: tuple[StoredObject, ...],
        about: Mapping[str, Any],
    ) -> Manifest:
        """Write what is no tensor; returns the manifest, not yet written."""
        data = json.dumps(document).encode()
        digest = hashlib.sha256(data).hexdigest()
        tree = StoredObject(tree_key(draft.step, draft.name), len(data), digest)
        self._store.write(tree.key, data)
        return Manifest(step=draft.step, save=draft.name, tree=tree, tensors=tensors, **about)

    @contextlib.contextmanager
    def discarding(self, draft: Draft) -> Iterator[None]:
        """After an error inside, what the save has written is removed."""
        try:
            yield
        except BaseException:
            self._discard(draft.step, draft.name)
            raise

    def create(self, manifest: Manifest, draft: Draft) -> None:
        """Write the manifest: the checkpoint exists."""
        if draft.step in self._damaged or draft.step in draft.before.given_up:
            self._delete_manifests([draft.step])
        self._known = set(draft.before.committed)
        self._create(manifest)

    def tidy(self, draft: Draft) -> None:
        """Remove what is not kept, after `create`."""
        try:
            self._tidy(draft.before, draft.step)
        except CloudtrainError as error:  # the new checkpoint is safe: no reason to end the training
            _log.warning("old checkpoints in %s are kept, they cannot be removed: %s", self.uri, error)

    def _read_manifest(self, step: int) -> Manifest:
        try:
            return Manifest.from_bytes(self._store.read(manifest_key(step)), step)
        except NotFound as error:
            raise Damaged("its manifest is gone") from error

    def _check_writers(self, step: int, committed: Collection[int]) -> None:
        unknown = set() if self._known is None else set(committed) - self._known
        if unknown:
            raise _two_writers(f"another run has saved step {max(unknown)} in {self.uri} meanwhile")
        later = [other for other in committed if other >= step and other not in self._damaged]
        if later:
            raise CheckpointError(
                f"step {step} cannot be saved in {self.uri}: step {later[-1]} is there already",
                hint="Call restore() first to go on from there. A run that starts again, goes on from an "
                "earlier step, or runs beside another needs a uri of its own.",
            )

    def _create(self, manifest: Manifest) -> None:
        # If this raises, the manifest may be there or not: the data must stay.
        self._unsure = manifest
        created = self._store.create(manifest_key(manifest.step), manifest.to_bytes())
        # A request that was sent twice, its first answer lost, finds its own manifest.
        if created or self._stands(manifest):
            self._settle(manifest)
            self._unsure = None
            return
        self._unsure = None
        self._discard(manifest.step, manifest.save)
        raise _two_writers(f"another run has taken step {manifest.step} in {self.uri} meanwhile")

    def _settle(self, manifest: Manifest) -> None:
        """``manifest`` is there: it is ours, and what it names stays.

        Whoever deletes a checkpoint deletes its manifest, then looks which objects others name, then deletes
        the rest. So if the manifest that has our old objects stands now, they stay.
        """
        reuses = any(not entry.key.startswith(manifest.own_prefix) for entry in manifest.tensors)
        if reuses and self._base and not self._stands(self._base):
            self._base = None
            self._delete_manifests([manifest.step])
            self._discard(manifest.step, manifest.save)
            raise _two_writers(f"another run has deleted checkpoints in {self.uri} meanwhile")
        self._manifests[manifest.step] = self._base = manifest
        self._own.add(manifest.step)
        self._damaged.discard(manifest.step)
        self._known = {*(self._known or ()), manifest.step}

    def _stands(self, manifest: Manifest) -> bool:
        try:
            return self._read_manifest(manifest.step).save == manifest.save
        except CheckpointError:
            return False

    def _discard(self, step: int, save: str) -> None:
        """Remove what a failed save has written, as far as the storage still answers."""
        with contextlib.suppress(CloudtrainError):
            self._store.delete([entry.key for entry in self._store.list(save_prefix(step, save))])

    def _delete_manifests(self, steps: Collection[int]) -> None:
        self._store.delete(map(manifest_key, steps))
        for step in steps:
            self._manifests.pop(step, None)

    def _tidy(self, before: Listing, step: int) -> None:
        """Delete the checkpoints that are not kept, and what interrupted saves have left.

        An object goes if no manifest names it and none ever will. It was named by a checkpoint that goes, or
        lies in the folder of a step that another save can no longer take: its manifest is there, or the step
        is given up for good. Steps to come are left alone.
        """
        if self._keep.newest is None:
            return
        committed = {*before.committed, step}
        whole = {other: self.metrics(other) for other in committed - self._damaged}
        doomed = self._keep.doomed(whole, committed & self._damaged)
        named = self._named(committed - set(doomed))
        dead = [(other, key) for other, key in before.objects_by_step() if other <= step and key not in named]
        if not doomed and not dead:
            return
        named_once = self._named(doomed)
        taken = committed | before.given_up
        for other in {other for other, key in dead if other not in taken and key not in named_once}:
            self._store.create(manifest_key(other), GIVEN_UP)
        self._delete_manifests(doomed)
        # Once more, for what another run has committed meanwhile: see `_create`.
        named = self._named(self.steps())
        self._store.delete([key for _, key in dead if key not in named])

    def _named(self, steps: Collection[int]) -> set[str]:
        """The keys of all objects of these checkpoints. Raises CheckpointError if a newer cloudtrain wrote one."""
        keys = set()
        for step in steps:
            with contextlib.suppress(Damaged):  # none will ever read it
                keys |= {entry.key for entry in self.manifest(step).objects}
        return keys


def _two_writers(message: str) -> CheckpointError:
    return CheckpointError(message, hint="Two runs save to one place: give each a uri of its own.")
