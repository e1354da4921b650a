"""Finds the rank that the others wait for in the Python stacks of all ranks.

Collectives of ``torch.distributed`` and of other libraries send no heartbeats. The stacks show which ranks are in one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_RANK = re.compile(r"^rank (\d+):$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

_COLLECTIVE = re.compile(
    r"/torch/distributed/(?!checkpoint/|elastic/)|/torch/nn/parallel/distributed\.py$|/cloudtrain/distributed/"
    r"|/horovod/|/mpi4py/|/tensorflow/python/distribute/"
)
"""Files whose functions wait for other ranks."""
_DECORATOR = re.compile(r"c10d_logger\.py$")
_BACKWARD = re.compile(r"/torch/autograd/")
"""Hooks of DDP and FSDP wait for other ranks in the backward pass, in native code. A rank may also compute there."""
_STANDARD = re.compile(r"/lib/python3[.\d]*/(?!site-packages/|dist-packages/)|^<frozen ")

OUTSIDE, BACKWARD, COLLECTIVE = range(3)


class Place(NamedTuple):
    """Where a rank is."""

    kind: int
    """`OUTSIDE` of collectives, in a `BACKWARD` pass, or in a `COLLECTIVE`."""
    call: str = ""
    """The function of the collective, and the line of the script that calls it."""


class Verdict(NamedTuple):
    """The ranks that may be the cause, and why. More than one: it is unclear which of them."""

    ranks: tuple[int, ...]
    why: str


def places_in(stacks: str) -> dict[int, Place]:
    """The place of each rank in the stacks that `Launch.stacks` returned, of all hosts."""
    parts = _RANK.split(stacks)
    return {int(rank): _place(text) for rank, text in zip(parts[1::2], parts[2::2])}


def _place(text: str) -> Place:
    frames = [
        (file, line, function)
        for file, line, function in _FRAME.findall(_main_thread(text))
        if not _STANDARD.search(file)
    ]
    inner = []
    while frames and _COLLECTIVE.search(frames[0][0]):
        inner.append(frames.pop(0))
    script = f"{frames[0][0].rpartition('/')[2]}:{frames[0][1]}" if frames else ""
    if inner:
        names = [function for file, _, function in inner if not _DECORATOR.search(file)]
        return Place(COLLECTIVE, f"{names[-1] if names else inner[-1][2]} at {script}")
    is_backward = frames and _BACKWARD.search(frames[0][0])
    return Place(BACKWARD, "a backward pass") if is_backward else Place(OUTSIDE)


def _main_thread(text: str) -> str:
    """The stack of the thread that runs the script; empty if the rank does not respond."""
    threads = _THREAD.split(text)[1:]
    return next(
        (thread for thread in threads if "/runtime/rank.py" in thread), threads[-1] if threads else ""
    )


def judge(places: Mapping[int, Place], ended: Sequence[int] = ()) -> Verdict | None:
    """The ranks that the others wait for; None if no rank waits for another.

    Args:
        ended: ranks that have ended with 0.
    """
    in_calls = [rank for rank, place in places.items() if place.kind == COLLECTIVE]
    waiting = [rank for rank, place in places.items() if place.kind != OUTSIDE]
    outside = tuple(sorted(places.keys() - set(waiting)))
    if waiting and outside:
        example = min(in_calls or waiting)
        return Verdict(outside, f"rank {example} waits in {places[example].call}")
    if not waiting or (len(places) == 1 and not in_calls):
        return None
    if ended:
        return Verdict(
            tuple(sorted(ended)),
            f"it has ended with exit code 0, and rank {waiting[0]} waits in a collective",
        )
    calls = Counter(places[rank].call for rank in waiting)
    shown = ", ".join(
        f"rank {next(r for r in waiting if places[r].call == call)} in {call}" for call in calls
    )
    alone = [rank for rank in waiting if calls[places[rank].call] == 1]
    if len(calls) == 2 and len(alone) == 1:
        return Verdict((alone[0],), f"the ranks wait in different collectives: {shown}")
    if len(calls) > 1:
        return Verdict(tuple(sorted(waiting)), f"the ranks wait in different collectives: {shown}")
    return Verdict(tuple(sorted(waiting)), f"all ranks wait in {shown.partition(' in ')[2]}")
