"""Copies from one place of this process's memory to another, by several threads.

Not by the framework: torch's threads wait for each other after every tensor, and where other processes have the
cores one of them is always late. A copy that takes 0.1 s then takes 2.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator

from cloudtrain.contract import cpu_count

THREADS = 4
"""At the most: so many fill the memory's bandwidth."""
PART = 4 << 20
"""Bytes that a thread takes at a time."""
SMALL = 1 << 16
"""Bytes that are copied sooner than another thread gets the interpreter's lock."""

Move = tuple[int, int, int]
"""The address to copy to, the address to copy from, and how many bytes."""

# ctypes.memmove lets go of the interpreter's lock, this one does not.
_move_small = ctypes.PyDLL(None).memmove
_move_small.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_move_small.restype = None


def copy(moves: Iterable[Move]) -> None:
    """Carry out all moves, in any order: none may touch what another one writes."""
    parts: list[Move] = []
    for target, source, nbytes in moves:
        if nbytes <= SMALL:
            _move_small(target, source, nbytes)
        else:
            parts += _parts(target, source, nbytes)
    queue = iter(parts)
    threads: list[threading.Thread] = []
    try:
        for _ in range(min(THREADS, cpu_count(), len(parts)) - 1):
            threads.append(threading.Thread(target=_work, args=(queue,)))
            threads[-1].start()
        _work(queue)
    finally:  # whatever happens, such as Ctrl-C: the memory may be gone afterwards
        for thread in threads:
            if thread.ident is not None:
                thread.join()


def _work(queue: Iterator[Move]) -> None:
    for move in queue:
        ctypes.memmove(*move)


def _parts(target: int, source: int, nbytes: int) -> Iterator[Move]:
    for begin in range(0, nbytes, PART):
        yield target + begin, source + begin, min(PART, nbytes - begin)
