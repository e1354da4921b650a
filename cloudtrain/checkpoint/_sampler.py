"""A sampler that goes on where a checkpoint was taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import Sampler


class ResumableSampler(Sampler[int]):
    """The order of another sampler, from where the training had come in it.

        sampler = ResumableSampler(DistributedSampler(dataset, hvd.size(), hvd.rank()))
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
        for epoch in range(sampler.epoch, epochs):
            if epoch != sampler.epoch:
                sampler.set_epoch(epoch)
            for number, batch in enumerate(loader):
                ...
                sampler.record_batch(number, len(batch))

    Batches are counted by the training and not here, since a `DataLoader` fetches ahead. The methods are those
    of ``hvd.elastic.ElasticSampler``, which needs no such wrapping.

    Args:
        sampler: its order must follow from the epoch alone, as that of ``DistributedSampler`` does (with
            ``num_replicas=1, rank=0`` for a process alone).
    """

    def __init__(self, sampler: Sampler[int]) -> None:
        self.sampler = sampler
        self.epoch = 0
        self._done = 0
        """Samples of this epoch that this rank has processed."""

    @property
    def _replicas(self) -> int:
        return int(getattr(self.sampler, "num_replicas", 1))

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch."""
        self._enter(epoch)
        self._done = 0

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed its next ``batch_size`` samples; ``batch_idx`` does not matter."""
        self._done += batch_size

    def state_dict(self) -> dict[str, Any]:
        """What all ranks have processed, so that another number of ranks can go on."""
        return {"epoch": self.epoch, "processed": self._done * self._replicas}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """On another number of ranks no sample is left out; up to one a rank may come again."""
        self._enter(state_dict["epoch"])
        self._done = state_dict["processed"] // self._replicas

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self.sampler), self._done, None)

    def __len__(self) -> int:
        """How many samples this rank has left in this epoch."""
        return max(0, len(self.sampler) - self._done)  # type: ignore[arg-type]

    def _enter(self, epoch: int) -> None:
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
