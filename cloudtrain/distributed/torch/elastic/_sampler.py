"""The samples of an epoch that nobody has seen yet, shared out among the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch.functions import allgather_object


class ElasticSampler(Sampler[int]):
    """Like ``DistributedSampler``, but it knows which samples of the epoch were processed.

    Put it into the `TorchState`, call `record_batch` after every batch, and `set_epoch` at the end of an epoch.
    When training starts anew from a commit, on however many ranks, what was processed up to that commit is left
    out. Every rank gets equally many samples: some are given twice where they cannot be divided.

    Args:
        dataset: only its length is used, which must not change.
        shuffle: in an order of its own every epoch, the same on all ranks.
        seed: the same on all ranks.
    """

    _remaining: Tensor
    """What is left of the epoch's order, as of the last `reset`."""
    _cursor: int
    """How much of it was processed since."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self._processed = torch.zeros(len(dataset), dtype=torch.bool)
        self._recorded: list[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, in which no sample was processed yet."""
        self.epoch = epoch
        self._processed.zero_()
        self._recorded.clear()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed its next ``batch_size`` samples; all ranks call it alike.

        ``batch_idx`` does not matter: loops that go on after a reset count in different ways.
        """
        end = self._cursor + batch_size * self.num_replicas
        self._processed[self._remaining[self._cursor : end]] = True
        self._cursor = end

    def record_indices(self, indices: Iterable[int]) -> None:
        """This rank has processed these samples, for loops that do not take the sampler's own order.

        What the ranks have recorded is put together by ``TorchState.commit``.
        """
        self._recorded.extend(indices)

    def merge(self) -> None:
        """Count as processed what any rank has given to `record_indices`; all ranks call it."""
        for indices in allgather_object(self._recorded, "processed samples"):
            self._processed[indices] = True
        self._recorded.clear()

    def reset(self) -> None:
        """Share out the samples that were not processed among the ranks of today."""
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
        """Raises InvalidArgument when the state is that of a dataset of another length."""
        processed: Tensor = state_dict["processed"]
        if len(processed) != len(self._processed):
            raise InvalidArgument(
                f"the sampler's state is of {len(processed)} samples, and the dataset has {len(self._processed)}",
                hint="Go on with the dataset that the training began with.",
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
        """How many samples this rank gets, from the last `reset` to the end of the epoch."""
        return math.ceil(len(self._remaining) / self.num_replicas)
