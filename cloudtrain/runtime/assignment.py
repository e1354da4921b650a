"""Gives the places of a job to its hosts."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def assign(everyone: Sequence[str], count: int, left_out: Collection[str]) -> tuple[list[str], list[str]]:
    """The hosts in rank order, and the spares. A spare has the rank of the host whose place it takes.

    Args:
        everyone: the hosts, the spares last.
        count: how many have a place.
        left_out: hosts that have lost their places, in this order. Without a spare that is left, they keep them.

    >>> assign(["a", "b", "c"], 2, ["a"])
    (['c', 'b'], [])
    """
    names, spares = list(everyone[:count]), [name for name in everyone[count:] if name not in left_out]
    for name in left_out:
        if name in names and spares:
            names[names.index(name)] = spares.pop(0)
    return names, spares


def taken_places(hosts: Sequence[str], places: Sequence[str]) -> list[str]:
    """
    >>> taken_places(["a", "b", "c"], ["a", "c"])
    ['c takes the place of b']
    """
    return [f"{new} takes the place of {old}" for old, new in zip(hosts, places) if old != new]
