"""The places of ranks by their stacks and their flight records: which of them wait in which collective.

The stack of a rank that waits for its GPU ends in any call, as in ``loss.item()``. Its record shows that it waits in a
collective of NCCL all the same. And ranks whose stacks are equal may be in different collectives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cloudtrain.observe.inquiry import InGroup
from cloudtrain.runtime.diagnose.hangs import BACKWARD, COLLECTIVE, OUTSIDE, Place

OF_ALL = " default_pg"
"""Ends the name of the group of all ranks, in PyTorch."""
ON_GPU = "nccl:"
"""Begins the names of collectives that a rank need not wait for in Python."""

Records = Mapping[int, Mapping[str, InGroup]]
"""By rank, of those that have answered, then by the name of a process group."""


class Wait(NamedTuple):
    """The collective that a rank waits in."""

    what: str
    """Such as ``nccl:all_reduce of Float[3], number 8 of nccl 0 default_pg``."""
    behind: tuple[int, ...]
    """The ranks that have not begun it, as far as that is known."""


def with_records(places: Mapping[int, Place], records: Records) -> dict[int, Place]:
    """The places of all ranks, with what their records add. Records of ranks without a place do not count."""
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
    """The collective that each rank waits in; of several, one that another rank has not begun."""
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
    """The last collective of a group that a rank has begun. Who is in a group that is not of all is unknown."""
    if name in groups:
        return groups[name].entered
    return 0 if name.endswith(OF_ALL) else math.inf


def _annotated(call: str, what: str) -> Place:
    return Place(COLLECTIVE, f"{call} ({what})" if call else what)
