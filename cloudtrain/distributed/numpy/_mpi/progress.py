"""One thread runs all of MPI's data operations.

MPI moves data only while somebody is in one of its calls. A rank that waits for rank 0's word, or computes, is
in none, and those who wait for its data would wait as long. One thread also means one order of starts.
"""

from __future__ import annotations

import queue
import threading
from typing import Callable

from mpi4py import MPI

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.observe.timeline.operation import Operation, now

Post = Callable[[], "list[MPI.Request]"]
"""Starts MPI operations on buffers that it refers to: it is kept until they end (mpi4py 4.1 does not keep the
buffers of Iallreduce)."""


class Transfer:
    """MPI operations under way, as one.

    Args:
        recorded: as what they are recorded.
    """

    def __init__(self, post: Post, recorded: Operation | None = None) -> None:
        self._post = post
        self._recorded = recorded
        self._requests: list[MPI.Request] = []
        self._ended = threading.Event()
        self.error: CollectiveError | None = None

    def done(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout: float) -> bool:
        """Whether it has ended within ``timeout`` seconds."""
        return self._ended.wait(timeout)

    def begin(self) -> None:
        if self._recorded is not None:
            self._recorded.carrier, self._recorded.began = "MPI", now()
        try:
            self._requests = self._post()
        except Exception as error:
            self._fail(error)

    def advance(self) -> bool:
        """Whether it has ended."""
        try:
            if self._requests and not MPI.Request.Testall(self._requests):
                return False
        except Exception as error:
            self._fail(error)
        if self._recorded is not None and self.error is None:
            self._recorded.end()
        self._ended.set()
        return True

    def _fail(self, error: Exception) -> None:
        self._requests = []
        self.error = CollectiveError(f"MPI failed: {error}")


class Progress:
    """The thread."""

    def __init__(self) -> None:
        self._posted: queue.SimpleQueue[Transfer | None] = queue.SimpleQueue()
        self._active: list[Transfer] = []
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="cloudtrain-mpi", daemon=True)
        self._thread.start()

    def start(self, post: Post, recorded: Operation | None = None) -> Transfer:
        """``post`` runs after all that were given before. Arguments of `Transfer`."""
        transfer = Transfer(post, recorded)
        self._posted.put(transfer)
        return transfer

    def close(self, timeout: float) -> bool:
        """Whether all has ended within ``timeout`` seconds."""
        self._posted.put(None)
        self._thread.join(timeout)
        self._given_up = True
        self._thread.join(timeout)
        return not self._active

    def _run(self) -> None:
        closing = False
        while not self._given_up and (self._active or not closing):
            while not closing and not (self._active and self._posted.empty()):
                transfer = self._posted.get()
                if transfer is None:
                    closing = True
                else:
                    transfer.begin()
                    self._active.append(transfer)
            self._active = [transfer for transfer in self._active if not transfer.advance()]
