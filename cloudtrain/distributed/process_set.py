"""Subsets of the ranks that run collectives among themselves."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument, NotInitialized


class ProcessSet:
    """A set of ranks: registered by ``init`` or ``add_process_set``, then passed to collectives as ``process_set``.

    Args:
        ranks_or_comm: global ranks. The name is Horovod's; MPI communicators are not accepted.
    """

    process_set_id: int | None = None
    """None until all ranks have registered the set."""

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
        """The ranks of a set to register. Raises InvalidArgument if it is invalid or already registered.

        Args:
            size: the world size.
            known: the registered sets, without the global one.
        """
        ranks, everyone = self.ranks, list(range(size))
        if not ranks or not set(ranks) <= set(everyone):
            raise InvalidArgument(f"{self!r}: a process set needs some of the {size} ranks")
        if self.process_set_id is not None or self in known:
            raise InvalidArgument(f"a process set with ranks {ranks} is already registered")
        if ranks == everyone:
            raise InvalidArgument(f"ranks {ranks} are all ranks", hint="Use global_process_set.")
        return ranks

    def attach(self, set_id: int, ranks: list[int], rank: int) -> None:
        """Mark the set as registered on all ranks. ``rank`` is this process's global rank."""
        self.process_set_id, self.ranks, self._rank = set_id, ranks, rank

    def detach(self) -> None:
        self.process_set_id = self._rank = None
        if self._all:
            self.ranks = None

    def members(self) -> list[int]:
        """The global ranks. Raises NotInitialized, or InvalidArgument if the set is not registered."""
        if self._all and self.ranks is None:
            raise NotInitialized
        if self.process_set_id is None or self.ranks is None:
            raise InvalidArgument(
                f"{self!r} is not registered",
                hint="Pass it to init(process_sets=[...]), or call add_process_set on all ranks first.",
            )
        return self.ranks

    def included(self) -> bool:
        """Whether this process is in the set."""
        return self._rank in self.members()

    def rank(self) -> int:
        """This process's rank within the set, from 0. Raises InvalidArgument if it is not a member."""
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
    """The set with this ID. Raises InvalidArgument if there is none."""
    known = [*known]
    for process_set in known:
        if process_set.process_set_id == set_id:
            return process_set
    ids = ", ".join(str(process_set.process_set_id) for process_set in known)
    raise InvalidArgument(
        f"there is no process set {set_id}", hint=f"Known: {ids}. add_process_set makes one."
    )


def process_sets_of(process_sets: Iterable[ProcessSet] | str | None) -> list[ProcessSet]:
    """The argument of ``init`` as a list. Raises InvalidArgument for anything but process sets."""
    if process_sets is None or process_sets == "dynamic":
        return []
    sets: list[Any] = list(process_sets)
    for process_set in sets:
        if not isinstance(process_set, ProcessSet):
            raise InvalidArgument(
                f"process_sets: {process_set!r} is not a ProcessSet",
                hint="Use init(process_sets=[ProcessSet([0, 1])]).",
            )
    return sets
