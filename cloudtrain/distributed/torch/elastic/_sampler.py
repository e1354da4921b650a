"""Divides the remaining samples of an epoch among the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch.objects import allgather_object


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
