"""How samples and rows are divided among ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain.distributed.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def shard_indices(
    count: int,
    rank: int,
    size: int,
    *,
    epoch: int,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    done: int = 0,
) -> NDArray[np.int64]:
    """A rank's share of the indices 0 to ``count - 1``, in the order of the epoch; the same number for every rank.

    For data that NumPy, ``tf.data`` or MXNet picks by index. PyTorch has ``DistributedSampler``, which
    `cloudtrain.checkpoint` and ``hvd.elastic`` can resume.

    The order depends only on ``seed`` and ``epoch``, and the ranks take turns in it: the next batches of B samples on
    ``size`` ranks are the next ``size * B`` samples of a single rank. Training can therefore resume on any number of
    ranks, and needs only ``done`` to know which samples are left.

    Args:
        epoch: from 0; each epoch has its own order.
        seed: the same on all ranks, below 2**32.
        drop_last: leave out the remainder of fewer than ``size`` samples. Otherwise samples from the beginning are
            repeated to fill up, as in ``torch.utils.data.DistributedSampler``.
        done: samples of this epoch that all ranks together have processed: steps * batch size * ranks.

    Returns:
        Indices of shape (ceil((count - done) / size),), or with ``drop_last`` rounded down.

    Raises:
        InvalidArgument: there is no such rank, or a number is out of range. Also a ValueError.
    """
    import numpy as np  # importing cloudtrain.distributed must not import NumPy

    if not 0 <= rank < size:
        raise InvalidArgument(f"shard_indices: rank {rank} of {size} ranks")
    for name, value in (("count", count), ("done", done), ("epoch", epoch), ("seed", seed)):
        if value < 0 or (name == "seed" and value >= 2**32):
            raise InvalidArgument(f"shard_indices: {name} is {value}")
    order = np.arange(count)
    if shuffle:
        # Not a Generator: its stream may change with the NumPy version (NEP 19), in the middle of a run.
        order = np.random.RandomState([seed, epoch]).permutation(count)
    left = order[done:]
    equal = len(left) // size if drop_last else -(-len(left) // size)
    return np.resize(left, equal * size)[rank::size]


def share(rows: int, rank: int, size: int) -> tuple[int, int]:
    """The first row and the number of rows of a rank's share; the first ranks get one more row if needed."""
    each, rest = divmod(rows, size)
    return rank * each + min(rank, rest), each + (rank < rest)


def even_splits(rows: int, size: int) -> list[int]:
    """Splits for an alltoall. Raises InvalidArgument if the rows do not divide evenly."""
    if rows % size:
        raise InvalidArgument(
            f"alltoall: {rows} rows cannot be divided among {size} ranks", hint="Give splits."
        )
    return [rows // size] * size


def check_splits(splits: list[int], rows: int, size: int, what: str) -> None:
    """Raises InvalidArgument unless ``splits`` divide all rows of an alltoall's ``what`` among ``size`` ranks."""
    if len(splits) != size:
        raise InvalidArgument(f"alltoall: {len(splits)} splits for {size} ranks")
    if min(splits) < 0 or sum(splits) != rows:
        raise InvalidArgument(f"alltoall: splits {splits} do not add up to the {rows} rows of the {what}")
