"""Some of the ranks, which run collectives among themselves."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument, NotInitialized


class ProcessSet:
    """Give it as ``process_set`` to collectives, once it is known by ``init`` or ``add_process_set``.

    Args:
        ranks_or_comm: global ranks. The name is Horovod's; a communicator of MPI is not taken.
    """

    process_set_id: int | None = None
    """None while the set is not known to all ranks."""

    def __init__(self, ranks_or_comm: Iterable[int] | None) -> None:
        self.ranks: list[int] | None = None
        if ranks_or_comm is not None:
            try:
                self.ranks = sorted({operator.index(rank) for rank in ranks_or_comm})
            except TypeError:
                raise InvalidArgument(f"ProcessSet({ranks_or_comm!r}) takes a list of ranks") from None
        self._all = ranks_or_comm is None
        self._rank: int | None = None

    def check_new(self, size: int, known: Collection[ProcessSet]) -> list[int]:
        """The ranks of a set that is to be made known. Raises InvalidArgument where it cannot be.

        Args:
            size: of the world.
            known: the sets that there are, but for that of all ranks.
        """
        ranks, everyone = self.ranks, list(range(size))
        if not ranks or not set(ranks) <= set(everyone):
            raise InvalidArgument(f"{self!r}: a process set needs some of the {size} ranks")
        if self.process_set_id is not None or self in known:
            raise InvalidArgument(f"a process set with ranks {ranks} is known already")
        if ranks == everyone:
            raise InvalidArgument(f"ranks {ranks} are all ranks", hint="Use global_process_set.")
        return ranks

    def attach(self, set_id: int, ranks: list[int], rank: int) -> None:
        """All ranks know the set now. ``rank`` is this process among all."""
        self.process_set_id, self.ranks, self._rank = set_id, ranks, rank

    def detach(self) -> None:
        self.process_set_id = self._rank = None
        if self._all:
            self.ranks = None

    def members(self) -> list[int]:
        """The global ranks. Raises NotInitialized, or InvalidArgument where the set is not known to all ranks."""
        if self._all and self.ranks is None:
            raise NotInitialized
        if self.process_set_id is None or self.ranks is None:
            raise InvalidArgument(
                f"{self!r} is not known to all ranks",
                hint="Give it to init(process_sets=[...]), or call add_process_set on all ranks first.",
            )
        return self.ranks

    def included(self) -> bool:
        """Whether this process is in the set."""
        return self._rank in self.members()

    def rank(self) -> int:
        """This process among those of the set, from 0. Raises InvalidArgument where it is not in it."""
        members = self.members()
        if self._rank not in members:
            raise InvalidArgument(f"rank {self._rank} is not in process set {members}")
        return members.index(self._rank)

    def size(self) -> int:
        """The number of ranks in the set."""
        return len(self.members())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ProcessSet) and self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(tuple(self.ranks or ()))

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


def with_id(set_id: int, known: Iterable[ProcessSet]) -> ProcessSet:
    """Raises InvalidArgument where there is none."""
    for process_set in known:
        if process_set.process_set_id == set_id:
            return process_set
    raise InvalidArgument(f"there is no process set {set_id}")


def process_sets_of(process_sets: Iterable[ProcessSet] | str | None) -> list[ProcessSet]:
    """The argument of ``init`` as a list. Raises InvalidArgument where something else is in it."""
    if process_sets is None or process_sets == "dynamic":
        return []
    sets: list[Any] = list(process_sets)
    for process_set in sets:
        if not isinstance(process_set, ProcessSet):
            raise InvalidArgument(
                f"process_sets: {process_set!r} is no ProcessSet",
                hint="Use init(process_sets=[ProcessSet([0, 1])]).",
            )
    return sets
