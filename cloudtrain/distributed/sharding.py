"""Which samples a rank trains on, for data that NumPy, ``tf.data`` or MXNet picks by index.

PyTorch has ``DistributedSampler`` for it, which `cloudtrain.checkpoint` and ``hvd.elastic`` can resume.
"""

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
    """A rank's share of the indices 0 to ``count - 1``, in the order of the epoch; equally many for every rank.

    The order follows from ``seed`` and ``epoch`` alone, and the ranks take turns in it: what ``size`` ranks make of
    their next batches of B samples is what one rank would make of its next ``size * B`` samples. So a training that
    goes on, on however many ranks, knows what is left by a single number, ``done``.

    Args:
        epoch: from 0; each has an order of its own.
        seed: the same on all ranks, below 2**32.
        drop_last: what cannot be divided by ``size``, fewer than ``size`` samples, is left out. Otherwise as many
            from the beginning are given twice, as ``torch.utils.data.DistributedSampler`` does it.
        done: how many samples of this epoch the ranks have processed together: steps * batch size * ranks.

    Returns:
        Indices of shape (ceil((count - done) / size),), or with ``drop_last`` (floor(...),).

    Raises:
        InvalidArgument: there is no such rank, or a number is out of its range. Also a ValueError.
    """
    import numpy as np  # `import cloudtrain.distributed` takes no library along

    if not 0 <= rank < size:
        raise InvalidArgument(f"shard_indices: rank {rank} of {size} ranks")
    for name, value in (("count", count), ("done", done), ("epoch", epoch), ("seed", seed)):
        if value < 0 or (name == "seed" and value >= 2**32):
            raise InvalidArgument(f"shard_indices: {name} is {value}")
    order = np.arange(count)
    if shuffle:
        # Not a Generator, whose stream another version of NumPy may change (NEP 19), in the middle of a training.
        order = np.random.RandomState([seed, epoch]).permutation(count)
    left = order[done:]
    equal = len(left) // size if drop_last else -(-len(left) // size)
    return np.resize(left, equal * size)[rank::size]


def share(rows: int, rank: int, size: int) -> tuple[int, int]:
    """The first row and the number of rows that a rank gets; the first ranks get one more if need be."""
    each, rest = divmod(rows, size)
    return rank * each + min(rank, rest), each + (rank < rest)


def even_splits(rows: int, size: int) -> list[int]:
    """For an alltoall. Raises InvalidArgument where rows would be left over."""
    if rows % size:
        raise InvalidArgument(
            f"alltoall: {rows} rows cannot be divided among {size} ranks", hint="Give splits."
        )
    return [rows // size] * size


def check_splits(splits: list[int], rows: int, size: int, what: str) -> None:
    """Raises InvalidArgument unless ``splits`` share out all rows of an alltoall's ``what`` among ``size`` ranks."""
    if len(splits) != size:
        raise InvalidArgument(f"alltoall: {len(splits)} splits for {size} ranks")
    if min(splits) < 0 or sum(splits) != rows:
        raise InvalidArgument(f"alltoall: splits {splits} do not add up to the {rows} rows of the {what}")
