"""The checkpoints of a store for people: what there is, whether it is whole, a copy of it.

Nothing here needs the framework whose tensors a checkpoint holds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.checkpoint import _tree
from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.checkpoint._manifest import GIVEN_UP, Manifest, StoredObject
from cloudtrain.checkpoint.layout import committed_step, manifest_key, step_of
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage.base import Entry, Progress, Store

CHUNK = 1 << 20


@dataclass(frozen=True)
class CheckpointInfo:
    """One committed checkpoint, as far as it can be told without reading its tensors."""

    step: int
    manifest: Manifest | None
    """None where it cannot be read."""
    problem: str = ""
    """Why it cannot be restored; empty where nothing is known against it."""
    newer: bool = False
    """Whether a newer cloudtrain has written it, which alone can read it."""

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return self.manifest.objects if self.manifest else ()

    @property
    def size(self) -> int:
        """Bytes of all that it consists of."""
        return sum(entry.size for entry in self.objects)

    @property
    def added(self) -> int:
        """Bytes that are its own: the rest lies in earlier steps, and has not changed since."""
        return sum(entry.size for entry in self.objects if step_of(entry.key) == self.step)

    @property
    def references(self) -> tuple[int, ...]:
        """The earlier steps in whose folders some of it lies."""
        steps = {step_of(entry.key) for entry in self.objects} - {self.step, None}
        return tuple(sorted(step for step in steps if step is not None))

    @property
    def metrics(self) -> dict[str, float]:
        return dict(_tree.decode({"tree": self.manifest.metrics}, {})) if self.manifest else {}

    def to_dict(self) -> dict[str, Any]:
        """For JSON. ``time`` is in seconds since the epoch, sizes in bytes."""
        record = {"step": self.step, "problem": self.problem or None}
        if self.manifest is None:
            return record
        about = ("time", "world_size", "job", "git_commit", "versions")
        return {
            **record,
            **{name: getattr(self.manifest, name) for name in about},
            "size": self.size,
            "added": self.added,
            "references": list(self.references),
            "metrics": self.metrics,
        }


@dataclass(frozen=True)
class Damage:
    """An object that is missing, or has not the bytes that were saved."""

    step: int
    key: str
    problem: str


def list_checkpoints(store: Store) -> list[CheckpointInfo]:
    """All committed checkpoints, by step; damage that a look at names and sizes shows is told."""
    return look(store)[0]


def find(store: Store, step: int | str = "latest") -> CheckpointInfo:
    """One of them. Raises CheckpointError where it is not there."""
    infos = {info.step: info for info in list_checkpoints(store)}
    wanted = max(infos, default=None) if step == "latest" else step
    if wanted not in infos:
        known = ", ".join(map(str, infos)) or "none"
        raise CheckpointError(f"{store.uri} has no checkpoint of step {step}", hint=f"Steps: {known}.")
    return infos[wanted]


def tensors(store: Store, info: CheckpointInfo) -> dict[str, TensorSpec]:
    """What its tensors are, by name. Raises Damaged where that cannot be read."""
    manifest = _readable(store, info)
    try:
        data = store.read(manifest.tree.key)
    except NotFound as error:
        raise Damaged(f"{manifest.tree.key} is missing") from error
    manifest.tree.verify(data)
    return _tree.decode_specs(json.loads(data))


def verify(store: Store, infos: Iterable[CheckpointInfo], progress: Progress | None = None) -> list[Damage]:
    """Read every object of these checkpoints, each once, and compare its hash.

    Raises:
        StorageError: the storage failed.
    """
    infos = list(infos)
    damage = [
        Damage(info.step, manifest_key(info.step), info.problem) for info in infos if info.manifest is None
    ]
    steps: dict[StoredObject, list[int]] = {}
    for info in infos:
        for entry in info.objects:
            steps.setdefault(entry, []).append(info.step)
    with Crew("cloudtrain-verify") as crew:
        problems = crew.map(lambda entry: _problem(store, entry, progress), steps)
    for entry, problem in zip(steps, problems):
        damage += [Damage(step, entry.key, problem) for step in steps[entry] if problem]
    return sorted(damage, key=lambda found: (found.step, found.key))


def download(store: Store, info: CheckpointInfo, folder: Path, progress: Progress | None = None) -> None:
    """Copy one checkpoint into ``folder``, from which a `Checkpointer` restores it. Every byte is verified.

    Raises:
        CheckpointError: it is damaged, or the folder has this step; then the folder is as it was.
        StorageError: the storage failed, or the folder cannot be written.
    """
    from cloudtrain.storage import FileStore

    manifest = _readable(store, info)
    if info.problem:
        raise _damaged(store, info.step, info.problem)
    target = FileStore(folder)
    if target.stat(manifest_key(info.step)) is not None:
        raise CheckpointError(f"{folder} has step {info.step} already", hint="Choose another folder.")
    data = store.read(manifest_key(info.step))
    made = not folder.exists()
    missing = [entry for entry in manifest.objects if target.stat(entry.key) is None]

    def copy(entry: StoredObject) -> None:
        store.download(entry.key, folder / entry.key, progress)

    try:
        with Crew("cloudtrain-download") as crew:
            crew.map(copy, missing)
        damage = verify(target, [info])
        if damage:
            raise _damaged(store, info.step, f"{damage[0].key} {damage[0].problem}")
        target.create(manifest_key(info.step), data)
    except BaseException:
        target.delete([entry.key for entry in missing])
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def look(store: Store) -> tuple[list[CheckpointInfo], list[Entry]]:
    """The checkpoints, and all objects that are no manifests."""
    steps, objects = [], []
    for entry in store.list("step-"):
        step = committed_step(entry.key)
        if step is None:
            objects.append(entry)
        elif entry.size != len(GIVEN_UP):
            steps.append(step)
    sizes = {entry.key: entry.size for entry in objects}
    with Crew("cloudtrain-list") as crew:
        return crew.map(lambda step: _info(store, step, sizes), sorted(steps)), objects


def _info(store: Store, step: int, sizes: dict[str, int]) -> CheckpointInfo:
    try:
        manifest = Manifest.from_bytes(store.read(manifest_key(step)), step)
    except NotFound:
        return CheckpointInfo(step, None, "its manifest is gone")
    except CheckpointError as error:
        return CheckpointInfo(step, None, error.message, newer=not isinstance(error, Damaged))
    missing = [entry.key for entry in manifest.objects if entry.key not in sizes]
    other = [entry.key for entry in manifest.objects if sizes.get(entry.key, entry.size) != entry.size]
    problem = f"{missing[0]} is missing" if missing else f"{other[0]} has another size" if other else ""
    return CheckpointInfo(step, manifest, problem)


def _readable(store: Store, info: CheckpointInfo) -> Manifest:
    if info.manifest is None:
        raise CheckpointError(f"step {info.step} in {store.uri} cannot be read: {info.problem}")
    return info.manifest


def _damaged(store: Store, step: int, problem: str) -> Damaged:
    return Damaged(
        f"step {step} in {store.uri} is damaged: {problem}",
        hint="See all of it with: cloudtrain checkpoints verify",
    )


def _problem(store: Store, entry: StoredObject, progress: Progress | None) -> str:
    """What is wrong with an object; empty where it is as it was saved."""
    digest = hashlib.sha256()
    size = 0
    try:
        with store.open(entry.key) as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
                if progress:
                    progress(len(chunk))
    except NotFound:
        return "is missing"
    if size != entry.size:
        return f"has {size} bytes, not {entry.size}"
    return "" if digest.hexdigest() == entry.sha256 else "has not the bytes that were saved"
