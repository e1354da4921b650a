"""Finds the collective in which each rank waits, by its stack and its flight record.

The stack of a rank that waits for its GPU may end in any call, such as ``loss.item()``, although its record shows that
it waits in a collective of NCCL. And ranks with equal stacks may be in different collectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cloudtrain.observe.inquiry import InGroup
from cloudtrain.runtime.diagnose.hangs import BACKWARD, COLLECTIVE, OUTSIDE, Place

OF_ALL = " default_pg"
"""The suffix of the name of PyTorch's group of all ranks."""
ON_GPU = "nccl:"
"""The prefix of the names of collectives in which a rank may wait outside of Python."""

Records = Mapping[int, Mapping[str, InGroup]]
"""The records of the ranks that have responded, by rank and then by the name of a process group."""


class Wait(NamedTuple):
    """The collective in which a rank waits."""

    what: str
    """The collective as text, such as ``nccl:all_reduce of Float[3], number 8 of nccl 0 default_pg``."""
    behind: tuple[int, ...]
    """The ranks that are known not to have begun it."""


def with_records(places: Mapping[int, Place], records: Records) -> dict[int, Place]:
    """The places of all ranks, completed from their records. Records of ranks without a place are ignored."""
    waits = dict(_waits({rank: groups for rank, groups in records.items() if rank in places}))
    found = dict(places)
    for rank, (what, behind) in waits.items():
        kind, call = places[rank]
        waits_unseen = kind in (OUTSIDE, BACKWARD) and what.startswith(ON_GPU) and behind
        if (waits_unseen and all(places[other].call != call for other in behind)) or (
            kind == COLLECTIVE
            and any(other.what != what and places[one].call == call for one, other in waits.items())
        ):
            found[rank] = _annotated(call, what)
    return found


def _waits(records: Records) -> Iterator[tuple[int, Wait]]:
    """The collective in which each rank waits; if there are several, one that another rank has not begun."""
    for rank, groups in records.items():
        waits = [
            Wait(
                f"{at.call}, number {at.waits} of {name}",
                tuple(other for other, one in records.items() if _entered(one, name) < at.waits),
            )
            for name, at in groups.items()
            if at.waits
        ]
        if waits:
            yield rank, max(waits, key=lambda wait: bool(wait.behind))


def _entered(groups: Mapping[str, InGroup], name: str) -> float:
    """The number of the last collective that a rank has begun in a group. Members of smaller groups are unknown."""
    if name in groups:
        return groups[name].entered
    return 0 if name.endswith(OF_ALL) else math.inf


def _annotated(call: str, what: str) -> Place:
    return Place(COLLECTIVE, f"{call} ({what})" if call else what)
