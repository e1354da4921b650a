"""What a training remembers: in memory, and in a file of the host where an elastic agent restarts ranks."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import Tensor, nn, optim

from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch.elastic._sampler import ElasticSampler
from cloudtrain.distributed.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from cloudtrain.errors import StorageError
from cloudtrain.storage.atomic import TEMPORARY, temporary_sibling


class State:
    """Base of all states; a subclass gives `save`, `restore` and `sync`.

    A direct subclass lives in memory only. For the values of an `ObjectState`, `run` keeps the last commit in a
    file too.
    """

    def __init__(self) -> None:
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0

    def commit(self) -> None:
        """Remember everything as it is now: after a failure, training goes on from here. For all ranks alike.

        It costs time: every rank copies the state to host memory, and the first rank of a host may write it to a
        file. Commit every some batches rather than after each.

        Raises:
            StorageError: the file cannot be written.
        """
        self.save()
        self._commits += 1
        self._keep()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Does nothing: when hosts come or go, torchrun's agent itself restarts the ranks."""

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Functions to call after every reset, with the new world in place; say, to scale learning rates."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """What `run` calls when the ranks have met again, before `sync`."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def save(self) -> None:
        """Copy the state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make the state equal on all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """For a subclass that has to adapt to another world."""

    def _keep(self) -> None:
        """Write what was saved to where it survives this process."""


class ObjectState(State):
    """Attributes given by name. What has a ``state_dict`` is kept by that, anything else is copied."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._names = list(values)
        self._file: CommitFile | None = None
        vars(self).update(values)
        self.save()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def save(self) -> None:
        saved = {}
        for name in self._names:
            value = getattr(self, name)
            saved[name] = _host_copy(value.state_dict()) if _is_stateful(value) else copy.deepcopy(value)
        self._saved = saved

    def restore(self) -> None:
        self._load(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Take the state of the rank that has committed most, the lowest such rank; also what it did since."""
        commits = allgather_object(self._commits, "number of commits")
        self._commits = max(commits)
        self._broadcast(commits.index(self._commits))
        self.save()

    def _broadcast(self, root: int) -> None:
        self._broadcast_objects(self._names, root)

    def _broadcast_objects(self, names: list[str], root: int) -> None:
        values = {}
        if _state.rank() == root:
            values = {name: getattr(self, name) for name in names}
            values.update({name: item.state_dict() for name, item in values.items() if _is_stateful(item)})
        self._load(broadcast_object(values, root, "state"))

    def _load(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            current = getattr(self, name)
            if _is_stateful(current):
                current.load_state_dict(value)
            else:
                setattr(self, name, value)

    def _keep(self) -> None:
        if self._file is not None:
            self._file.write(Commit(self._commits, self._saved))

    def resume(self, file: CommitFile) -> bool:
        """Take the commit in ``file``, if there is one, and keep those to come there; `sync` is to follow."""
        self._file = file
        file.sweep()
        commit = file.read()
        if commit is None:
            return False
        self._commits, self._saved = commit.number, commit.saved
        self.restore()
        return True


class TorchState(ObjectState):
    """The state of a training with PyTorch.

        state = TorchState(model, optimizer, sampler=sampler, scheduler=scheduler, epoch=0, batch=0)

    Models, optimizers, samplers, and whatever else has a ``state_dict`` and ``load_state_dict`` are brought back
    in place; other values become new attributes.
    """

    def __init__(
        self, model: nn.Module | None = None, optimizer: optim.Optimizer | None = None, **values: Any
    ) -> None:
        super().__init__(model=model, optimizer=optimizer, **values)

    def commit(self) -> None:
        for name in self._names:
            if isinstance(value := getattr(self, name), ElasticSampler):
                value.merge()
        super().commit()

    def _broadcast(self, root: int) -> None:
        """Large tensors travel as tensors."""
        objects = []
        for name in self._names:
            value = getattr(self, name)
            if isinstance(value, nn.Module):
                broadcast_parameters(value.state_dict(), root)
            elif isinstance(value, optim.Optimizer):
                broadcast_optimizer_state(value, root)
            else:
                objects.append(name)
        self._broadcast_objects(objects, root)


def _is_stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _host_copy(value: Any) -> Any:
    """A copy whose tensors are on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        copied = copy.copy(value)  # a module's state has attributes of its own
        copied.update((key, _host_copy(item)) for key, item in value.items())
        return copied
    if type(value) in (list, tuple):
        return type(value)(_host_copy(item) for item in value)
    return copy.deepcopy(value)


@dataclass(frozen=True)
class Commit:
    number: int
    """Commits of a run are counted from 1."""
    saved: dict[str, Any]


@dataclass(frozen=True)
class CommitFile:
    """Holds one commit: the one before, until the next is whole."""

    path: Path

    def write(self, commit: Commit) -> None:
        """Raises StorageError.

        Nothing waits for the disk: it is processes that die, and a host that dies takes its file along.
        """
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with temporary_sibling(self.path) as temporary:
                with temporary.open("wb") as file:
                    torch.save(vars(commit), file)
                os.replace(temporary, self.path)
        except (OSError, RuntimeError) as error:  # a full disk is the latter to torch
            raise StorageError(
                f"the commit cannot be written to {self.path}: {error}",
                hint="There must be room for twice the state. torchrun's --log-dir names another place.",
            ) from error

    def read(self) -> Commit | None:
        """None where there is no commit yet.

        A pickle, because a script may keep anything in its state; the folder is its user's alone.
        """
        if not self.path.exists():
            return None
        return Commit(**torch.load(self.path, weights_only=False))

    def sweep(self) -> None:
        """Remove what a killed `write` has left."""
        for path in self.path.parent.glob(f"{TEMPORARY}*"):
            path.unlink()


def commit_file(run: int, environ: Mapping[str, str] = os.environ) -> CommitFile | None:
    """Where this host keeps the commits of a script's ``run``-th call of `elastic.run`.

    That is in the job's run folder, else in the log folder of torchrun's agent: the agent makes it anew for each
    launch, for its user alone, and keeps it over restarts. It is known from ``TORCHELASTIC_ERROR_FILE``, which is
    ``<folder>/attempt_<restart>/<local rank>/error.json`` (``DefaultLogsSpecs`` in
    https://docs.pytorch.org/docs/stable/elastic/multiprocessing.html).

    Returns:
        None where no elastic agent has started this rank, or one without a log folder.
    """
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    if environ.get("CLOUDTRAIN_RUN_DIR"):
        folder = Path(environ["CLOUDTRAIN_RUN_DIR"])
    elif environ.get("TORCHELASTIC_ERROR_FILE"):
        folder = Path(environ["TORCHELASTIC_ERROR_FILE"]).parents[2]
    else:
        return None
    return CommitFile(folder / "elastic" / f"run-{run}.pt")
