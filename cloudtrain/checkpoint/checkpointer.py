"""`Checkpointer`: saves the state of a training, and finds the last one again."""

from __future__ import annotations

import contextlib
import operator
import os
import platform
import time
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain import environment
from cloudtrain._version import __version__
from cloudtrain.checkpoint import _framework, _objects, _tree
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._manifest import Manifest
from cloudtrain.checkpoint.layout import MAX_STEP, committed_step, manifest_key, save_prefix
from cloudtrain.errors import CheckpointError, CloudtrainError, NotFound
from cloudtrain.observe import beat
from cloudtrain.storage import open_store

DEFAULT_FOLDER = "checkpoints"
"""Where checkpoints go outside a job, below the working directory."""

_STEPS = f'A step is a number from 0 to {MAX_STEP}; restore takes "latest" too.'


@dataclass(frozen=True)
class Checkpoint:
    """What `Checkpointer.restore` gives back."""

    step: int
    state: Any
    metrics: Mapping[str, float]


class Checkpointer:
    """Checkpoints of one training run below one URI.

    A checkpoint is data first and a manifest last; it exists if and only if its manifest does. A process that
    is killed at any instant leaves every committed checkpoint whole.

    Steps only go up: a save at or below a committed step is refused, since it would mix two runs. Two cases
    are no mixture: a step that this object saved or restored is kept as it is, and one that it found damaged
    is replaced.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///folder`` or a path. The default is the job's, and
            ``./checkpoints`` outside a job.
        keep: how many checkpoints to keep; None keeps all.
    """

    def __init__(self, uri: str | os.PathLike[str] | None = None, *, keep: int | None = 3) -> None:
        if keep is not None and keep < 1:
            raise CheckpointError(f"keep={keep} would keep no checkpoint", hint="Give at least 1.")
        self._store = open_store(_full_uri(uri or environment.checkpoint_uri() or DEFAULT_FOLDER))
        self._keep = keep
        self._own: set[int] = set()
        self._damaged: set[int] = set()

    @property
    def uri(self) -> str:
        return self._store.uri

    def steps(self) -> list[int]:
        """The committed steps, ascending."""
        steps = (committed_step(entry.key) for entry in self._store.list("step-"))
        return sorted(step for step in steps if step is not None)

    def save(self, step: int, state: Any, metrics: Mapping[str, float] | None = None) -> None:
        """Commit ``state`` as ``step``; it is durable when this returns.

        Call it on every rank: rank 0 writes, on the others it returns at once.

        Args:
            state: a tree of dicts, lists and tuples of torch tensors, NumPy arrays, numbers, strings, bytes,
                booleans and None. A tensor is saved without its device and its gradient.
            metrics: numbers that belong to this step, such as the validation loss.

        Raises:
            CheckpointError: the state holds something else, or the URI holds this or a later step already.
            StorageError: the storage failed; the checkpoints before are as they were.
        """
        beat()
        step = _checked_step(step)
        if environment.rank() != 0:
            return
        committed = self.steps()
        if step in self._own and step in committed:
            return
        self._refuse_to_go_back(step, committed)
        self._commit(step, state, metrics or {})
        self._own.add(step)
        self._damaged.discard(step)
        self._retain({*committed, step})
        beat()

    def restore(self, step: int | str = "latest") -> Checkpoint | None:
        """The checkpoint of ``step``, verified; tensors are in the host's memory.

        Every rank may call it: each reads for itself. For a large state let rank 0 restore, and broadcast.
        A latest checkpoint that is damaged is reported by a warning, and the one before it is taken.

        Returns:
            None where there is no checkpoint yet, and the latest is asked for.

        Raises:
            CheckpointError: there is no such step; it is damaged, or all are; a newer cloudtrain wrote it.
            StorageError: the storage failed.
        """
        beat()
        steps = self.steps()
        if step != "latest":
            step = _checked_step(step)
            if step not in steps:
                known = ", ".join(map(str, steps)) or "none"
                raise CheckpointError(f"{self.uri} has no checkpoint of step {step}", hint=f"Steps: {known}.")
            return self._load(step)
        for candidate in reversed(steps):
            try:
                return self._load(candidate)
            except Damaged as error:
                warnings.warn(
                    f"{error.message}; going back to the step before it", RuntimeWarning, stacklevel=2
                )
        if steps:
            raise CheckpointError(
                f"every checkpoint in {self.uri} is damaged: steps {', '.join(map(str, steps))}",
                hint="To start again from nothing, give another uri.",
            )
        return None

    def _load(self, step: int) -> Checkpoint:
        try:
            manifest = self._manifest(step)
            state = _objects.read(self._store, manifest)
            metrics = _tree.decode({"tree": manifest.metrics}, {})
        except Damaged as error:
            self._damaged.add(step)
            raise Damaged(f"checkpoint {step} in {self.uri} is damaged: {error.message}") from error
        self._own.add(step)
        beat()
        return Checkpoint(step, state, metrics)

    def _manifest(self, step: int) -> Manifest:
        try:
            return Manifest.from_bytes(self._store.read(manifest_key(step)), step)
        except NotFound as error:
            raise Damaged("its manifest is gone") from error

    def _refuse_to_go_back(self, step: int, committed: list[int]) -> None:
        later = [other for other in committed if other >= step and other not in self._damaged]
        if later:
            raise CheckpointError(
                f"step {step} cannot be saved in {self.uri}: step {later[-1]} is there already",
                hint="Call restore() first to go on from there. A run that starts again, goes on from an "
                "earlier step, or runs beside another needs a uri of its own.",
            )

    def _commit(self, step: int, state: Any, metrics: Mapping[str, float]) -> None:
        document, leaves = _tree.encode(state)
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        save = uuid.uuid4().hex[:16]
        try:
            tree, tensors = _objects.write(self._store, step, save, document, leaves)
        except BaseException:
            self._discard(step, save)
            raise
        manifest = Manifest(
            step=step,
            save=save,
            time=time.time(),
            tree=tree,
            tensors=tuple(tensors),
            metrics=_tree.encode(numbers, "metrics")[0]["tree"],
            world_size=environment.world_size(),
            job=environment.job_name(),
            versions={
                "cloudtrain": __version__,
                "python": platform.python_version(),
                **_framework.versions(),
            },
        )
        if step in self._damaged:
            self._remove(step)
        # If this raises, the manifest may be there or not: the data must stay.
        created = self._store.create(manifest_key(step), manifest.to_bytes())
        # A request that was sent twice, its first answer lost, finds its own manifest.
        if not created and self._manifest(step).save != save:
            self._discard(step, save)
            raise CheckpointError(
                f"another writer committed step {step} in {self.uri} at the same time",
                hint="Two runs save to one place: give each a uri of its own.",
            )

    def _discard(self, step: int, save: str) -> None:
        """Remove what a failed save has written, as far as the storage still answers."""
        with contextlib.suppress(CloudtrainError):
            self._store.delete([entry.key for entry in self._store.list(save_prefix(step, save))])

    def _retain(self, steps: set[int]) -> None:
        """Delete what is older than the ``keep`` newest whole ones: the manifest first, the objects after."""
        whole = sorted(steps - self._damaged)
        if self._keep is None or len(whole) <= self._keep:
            return
        for step in sorted(step for step in steps if step < whole[-self._keep]):
            try:
                self._remove(step)
            except CloudtrainError as error:  # the new checkpoint is safe: no reason to end the training
                message = f"checkpoint {step} in {self.uri} is kept, it cannot be removed: {error.message}"
                warnings.warn(message, RuntimeWarning, stacklevel=3)

    def _remove(self, step: int) -> None:
        try:
            keys = [entry.key for entry in self._manifest(step).objects]
        except Damaged:
            keys = []
        self._store.delete([manifest_key(step)])
        self._store.delete(keys)


def _full_uri(uri: str | os.PathLike[str]) -> str:
    text = os.fspath(uri)
    return text if "://" in text else Path(text).absolute().as_uri()


def _checked_step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise CheckpointError(f"step {step!r} is no whole number", hint=_STEPS) from None
    if not 0 <= number <= MAX_STEP:
        raise CheckpointError(f"step {number} is out of range", hint=_STEPS)
    return number


def _number(name: str, value: Any) -> int | float:
    try:
        return value if type(value) is int else float(value)
    except (TypeError, ValueError, RuntimeError):
        raise CheckpointError(
            f"metrics[{name!r}] is no number: {value!r}",
            hint="Metrics are numbers; other things go into the state.",
        ) from None
