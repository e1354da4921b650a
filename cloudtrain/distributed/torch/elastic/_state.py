"""Elastic states, committed in memory and with an elastic agent also to a file on the host, and the loop that restores
them after a failure."""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import torch
from torch import Tensor, nn, optim
from torch.utils.data import Sampler

from cloudtrain import environment
from cloudtrain.contract.trackers import RUN_ID
from cloudtrain.distributed.errors import CollectiveError, HostsUpdatedInterrupt, InvalidArgument
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._failures import give_up
from cloudtrain.distributed.torch._init import reinit
from cloudtrain.distributed.torch.elastic._commit import Commit, CommitFile, commit_file
from cloudtrain.distributed.torch.elastic._handover import Handover, heed_notices
from cloudtrain.distributed.torch.functions import broadcast_optimizer_state, broadcast_parameters
from cloudtrain.distributed.torch.objects import allgather_object, broadcast_object
from cloudtrain.environment.commits import CommitNumber, committed, newest_commit


class State:
    """Base class of states; a subclass implements `save`, `restore` and `sync`.

    A direct subclass lives in memory only. For an `ObjectState`, `run` also keeps the last commit in a file.
    """

    def __init__(self) -> None:
        self._reset_callbacks: list[Callable[[], None]] = []
        self._commits = 0
        self._run = 0
        """The number of the call of `run` that has this state."""

    def commit(self) -> None:
        """Save the current state: after a failure, training resumes from here. All ranks call it.

        A commit takes time: every rank copies the state to host memory, and the first rank of a host may write it to a
        file. Commit every few batches rather than after each.

        Raises:
            StorageError: the file cannot be written.
        """
        self.save()
        self._commits += 1
        committed(CommitNumber(self._run, self._commits))
        self._persist()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """After a notice that a host is taken back, end the attempt; the next one continues from its state.

        Otherwise does nothing, because torchrun's agent restarts the ranks when hosts are added or removed.
        """

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Register functions to call after every reset, in the new world; for example, to scale learning rates."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called by `run` after the ranks have initialized again, before `sync`."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def save(self) -> None:
        """Copy the state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restore the last saved copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make the state the same on all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """For subclasses that adapt to a changed world."""

    def _persist(self) -> None:
        """Write the saved state to storage that survives this process."""


class ObjectState(State):
    """Named attributes. Objects with a ``state_dict`` are saved through it, other values are copied."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._names = list(values)
        self._file: CommitFile | None = None
        self._handover: Handover | None = None
        """Only on rank 0 of a job."""
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
        """Take the current state of the rank with the most commits, and of those the lowest rank."""
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

    def _persist(self) -> None:
        if self._file is not None:
            self._file.write(Commit(self._commits, self._saved))

    def check_host_updates(self) -> None:
        if self._handover is not None:
            self._handover.leave_if_preempted(self._last_commit)

    def _last_commit(self) -> Commit:
        self.save()  # the last commit may be some batches ago
        return Commit(self._commits + 1, self._saved)

    def leave_after_failure(self) -> None:
        """After a notice, hand the last commit over and end the attempt, because other hosts may already be gone."""
        if self._handover is not None and self._commits:
            self._handover.leave_if_preempted(lambda: Commit(self._commits, self._saved))

    def completed(self) -> None:
        """Hand the last commit over once training has ended, so that a script that fails later does not repeat it."""
        if self._handover is not None:
            self._handover.keep(Commit(self._commits, self._saved))

    def keep_in(
        self, file: CommitFile | None, handover: Handover | None = None, after: int = 0
    ) -> Commit | None:
        """Write further commits there. Returns the newest stored commit that is later than number ``after``."""
        self._file, self._handover = file, handover
        found = []
        if file is not None:
            file.sweep()
            found.append(file.read())
        if handover is not None:
            found.append(handover.read(after))
        newer = [one for one in found if one and one.number > after]
        return max(newer, key=lambda one: one.number, default=None)

    def take(self, commit: Commit) -> None:
        """Restore a commit that another process has kept; call `sync` next."""
        self._commits, self._saved = commit.number, commit.saved
        self.restore()


class TorchState(ObjectState):
    """The state of training with PyTorch.

        state = TorchState(model, optimizer, sampler=sampler, scheduler=scheduler, epoch=0, batch=0)

    Models, optimizers, samplers and other objects with ``state_dict`` and ``load_state_dict`` are restored in place;
    other values become new attributes.
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
        """Broadcast large tensors as tensors."""
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
        copied = copy.copy(value)  # the state of a module has its own attributes
        copied.update((key, _host_copy(item)) for key, item in value.items())
        return copied
    if type(value) in (list, tuple):
        return type(value)(_host_copy(item) for item in value)
    return copy.deepcopy(value)


T = TypeVar("T")

REINIT_SECONDS = 10.0
"""How long ranks wait for one another after a failure. All of them have detected it, so living ranks arrive soon. If
one does not, this rank fails, and the agent restarts all ranks."""

MAX_FAILURES = 3
"""After this number of failures in a row without a commit in between, the cause is considered permanent."""

_runs = itertools.count()
_log = logging.getLogger(__name__)


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Decorate a training function, whose first argument is a `State`, so that it survives lost ranks.

    Before the function starts, the newest commit on any host is restored, and the state is made the same on all ranks.
    When a collective fails and all ranks are alive, they initialize again, and the function is called again with the
    state of the last commit. When a rank has died, the error propagates, so that torchrun's agent restarts all ranks.

    Raises:
        CollectiveError: the ranks could not initialize again, or failed repeatedly without a commit in between.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        start = _Start(state, next(_runs))
        reset = False
        must_sync = True
        failures, commits = 0, 0
        while True:
            try:
                if start.agree(reset):
                    state.on_reset()
                if must_sync:
                    state.sync()
                committed(CommitNumber(state._run, state._commits))
                result = func(state, *args, **kwargs)
                if isinstance(state, ObjectState):
                    state.completed()
                return result
            except CollectiveError as error:
                failures = failures + 1 if state._commits == commits else 1
                commits = state._commits
                if isinstance(state, ObjectState):
                    state.leave_after_failure()
                if failures >= MAX_FAILURES:
                    raise
                _log.warning("restoring commit %d: %s", commits, error)
                give_up()  # before the state is copied to the GPU, which would wait for what was launched
                state.restore()
                must_sync = True
            except HostsUpdatedInterrupt as interrupt:
                must_sync = not interrupt.skip_sync
            reinit(REINIT_SECONDS)
            reset = True

    return wrapper


class _Start:
    """Starts a run from the newest of the commits that hosts have kept and the checkpoint that was restored.

    One rank of each host reads the host's last commit, and writes further ones to its file, so that losing a host loses
    no commit. Rank 0 also reads the commit that an earlier attempt of the job has handed over.

    Args:
        run: the number of the script's call of `elastic.run`.
    """

    def __init__(self, state: State, run: int) -> None:
        self._state = state
        self._run = state._run = run
        self._commit: Commit | None = None
        uri, job = environment.checkpoint_uri(), os.environ.get(RUN_ID)
        if uri and job:
            heed_notices()
        if isinstance(state, ObjectState) and _state.local_rank() == 0:
            handover = Handover(uri, job, run) if uri and job and _state.rank() == 0 else None
            self._commit = state.keep_in(commit_file(run), handover, self._after(newest_commit()))
        self._is_agreed = False

    def agree(self, reset: bool) -> bool:
        """Restore this rank's commit, unless it is older than the checkpoint that a rank has restored.

        Returns whether any rank has restored a commit, or has passed True as ``reset``.
        """
        newest = max(CommitNumber(*one) for one in allgather_object(tuple(newest_commit()), "newest commit"))
        if not self._is_agreed:
            self._is_agreed = True
            self._state._commits = newest.commit if newest.run == self._run else 0
            commit, self._commit = self._commit, None
            if commit and commit.number > self._after(newest) and isinstance(self._state, ObjectState):
                self._state.take(commit)
                reset = True
        return any(allgather_object(reset, "reset"))

    def _after(self, newest: CommitNumber) -> int:
        """The number of this run's last commit that a state includes whose last commit is ``newest``."""
        return newest.commit if newest.run == self._run else 0 if newest.run < self._run else sys.maxsize


class ElasticSampler(Sampler[int]):
    """Like ``DistributedSampler``, but keeps track of the processed samples of the epoch.

    Put it into the `TorchState`, call `record_batch` after every batch, and `set_epoch` at the end of an epoch. When
    training resumes from a commit, on any number of ranks, the samples processed up to that commit are left out. Every
    rank gets the same number of samples; some samples are repeated if they cannot be divided evenly.

    Args:
        dataset: only its length is used, which must not change.
        shuffle: in a different order every epoch, the same on all ranks.
        seed: the same on all ranks.
    """

    _remaining: Tensor
    """The remaining samples in the epoch's order, as of the last `reset`."""
    _cursor: int
    """How many of them have been processed since."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self._processed = torch.zeros(len(dataset), dtype=torch.bool)
        self._recorded: list[int] = []
        self.reset()

    @property
    def processed_num(self) -> int:
        """The number of samples that all ranks together have processed in this epoch."""
        return int(self._processed.sum())

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch, in which no sample has been processed."""
        self.epoch = epoch
        self._processed.zero_()
        self._recorded.clear()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every rank has processed its next ``batch_size`` samples. All ranks call it.

        ``batch_idx`` is ignored: after a reset, loops count batches in different ways.
        """
        end = self._cursor + batch_size * self.num_replicas
        self._processed[self._remaining[self._cursor : end]] = True
        self._cursor = end

    def record_indices(self, indices: Iterable[int]) -> None:
        """Record that this rank has processed these samples, for loops that do not follow the sampler's order.

        ``TorchState.commit`` merges the records of all ranks.
        """
        self._recorded.extend(indices)

    def merge(self) -> None:
        """Mark the samples passed to `record_indices` on any rank as processed; all ranks call it."""
        for indices in allgather_object(self._recorded, "processed samples"):
            self._processed[indices] = True
        self._recorded.clear()

    def reset(self) -> None:
        """Divide the remaining samples among the current ranks."""
        self.rank, self.num_replicas = _state.rank(), _state.size()
        order = torch.arange(len(self._processed))
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(self._processed), generator=generator)
        self._remaining = order[~self._processed[order]]
        self._cursor = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "processed": self._processed.clone()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Raises InvalidArgument if the state is that of a dataset of another length."""
        processed: Tensor = state_dict["processed"]
        if len(processed) != len(self._processed):
            raise InvalidArgument(
                f"the sampler's state is of {len(processed)} samples, but the dataset has {len(self._processed)}",
                hint="Resume with the dataset that the training started with.",
            )
        self.epoch = state_dict["epoch"]
        self._processed = processed.clone()
        self._recorded.clear()
        self.reset()

    def __iter__(self) -> Iterator[int]:
        if not len(self):
            return iter(())
        total = len(self) * self.num_replicas
        positions = torch.arange(self.rank, total, self.num_replicas) % len(self._remaining)
        return iter(self._remaining[positions].tolist())

    def __len__(self) -> int:
        """The number of samples of this rank from the last `reset` to the end of the epoch."""
        return math.ceil(len(self._remaining) / self.num_replicas)
