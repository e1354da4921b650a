"""Which rows of the first dimension go to which rank."""

from __future__ import annotations

from cloudtrain.distributed.errors import InvalidArgument


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
