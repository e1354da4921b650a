"""Assigns the places of a job to its hosts."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def assign(
    everyone: Sequence[str], count: int, left_out: Collection[str], dropped: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """The hosts in rank order, and the spare hosts. A spare host gets the rank of the host whose place it takes.

    Args:
        everyone: all hosts, the spare ones last.
        count: the number of places.
        left_out: the hosts that have lost their places to spare hosts, in this order. If no spare host is left, they
            keep their places.
        dropped: the hosts whose places no spare host takes. The ranks after them move up.

    >>> assign(["a", "b", "c"], 2, ["a"])
    (['c', 'b'], [])
    >>> assign(["a", "b", "c", "d"], 3, ["a"], ["b"])
    (['d', 'c'], [])
    """
    names, spares = list(everyone[:count]), [name for name in everyone[count:] if name not in left_out]
    for name in left_out:
        if name in names and spares:
            names[names.index(name)] = spares.pop(0)
    return [name for name in names if name not in dropped], spares


def taken_places(hosts: Sequence[str], places: Sequence[str]) -> list[str]:
    """
    >>> taken_places(["a", "b", "c"], ["a", "c"])
    ['c takes the place of b']
    """
    return [f"{new} takes the place of {old}" for old, new in zip(hosts, places) if old != new]
