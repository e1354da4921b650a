"""What lies in a store: steps that are committed, and objects of any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloudtrain.checkpoint._manifest import GIVEN_UP
from cloudtrain.checkpoint.layout import committed_step, step_of
from cloudtrain.storage.base import Store


@dataclass(frozen=True)
class Listing:
    """One look at a store."""

    committed: tuple[int, ...]
    """Ascending."""
    given_up: frozenset[int]
    """Steps that can never be committed any more."""
    objects: tuple[str, ...]
    """The keys of all that are no manifests."""

    @classmethod
    def of(cls, store: Store) -> Listing:
        committed, given_up, objects = [], set(), []
        for entry in store.list("step-"):
            step = committed_step(entry.key)
            if step is None:
                objects.append(entry.key)
            elif entry.size == len(GIVEN_UP):
                given_up.add(step)
            else:
                committed.append(step)
        return cls(tuple(sorted(committed)), frozenset(given_up), tuple(objects))

    def objects_by_step(self) -> Iterator[tuple[int, str]]:
        for key in self.objects:
            step = step_of(key)
            if step is not None:
                yield step, key
