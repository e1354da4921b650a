"""Measures the CPU time that rank 0 spends to negotiate one operation, by the number of ranks.

    python benchmarks/negotiation.py [--runs 5] [--ranks 2 8 64 128] [--quick] [--json]

The coordinator and its connections are the real ones; the other ranks are one process that holds all their
connections. Rank 0 runs as in a job: it requests the operations too, and waits for each. ``one by one`` waits for an
operation before the next request; ``50 together`` requests 50 before it waits, as for the tensors of a model. The names
repeat, as they do from step to step; ``new names`` never do. Rank counts take turns. To compare two versions of
cloudtrain, run it in both, in turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator

from _common import OURS, Report, run_parts

from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.coordinator import Coordinator
from cloudtrain.distributed.negotiation.messages import (
    GLOBAL,
    HELLO,
    NUMBERS,
    RESPONSE,
    CollectiveRequest,
    KnownNumbers,
    Unpacker,
    pack,
    unpack_response,
)
from cloudtrain.link.authentication import BACKLOG
from cloudtrain.link.handshake import prove

RANKS = [2, 8, 64, 128]
NAMES = 50
KEY = os.urandom(32)
MUST_MATCH = {
    "shape": [513],
    "type": "float64",
    "operation": "Sum",
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "device": "cuda",
}


def one_by_one(operations: int) -> Iterator[list[CollectiveRequest]]:
    """Batches of requests. The requests of a batch are in flight at the same time."""
    return ([_request(str(number % NAMES))] for number in range(operations))


def together(operations: int) -> Iterator[list[CollectiveRequest]]:
    return ([_request(str(name)) for name in range(NAMES)] for _ in range(operations // NAMES))


def new_names(operations: int) -> Iterator[list[CollectiveRequest]]:
    return ([_request(f"new {number}")] for number in range(operations))


MODES: dict[str, Callable[[int], Iterator[list[CollectiveRequest]]]] = {
    "one by one": one_by_one,
    f"{NAMES} together": together,
    "one by one, new names": new_names,
}


def _request(name: str) -> CollectiveRequest:
    return CollectiveRequest("allreduce", f"allreduce:tensor {name}", GLOBAL, MUST_MATCH)


class _Rank:
    """One of the ranks other than rank 0, without threads."""

    def __init__(self, address: tuple[str, int], rank: int) -> None:
        self.connection = socket.create_connection(address)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        prove(self.connection, KEY, "ranks", time.monotonic() + 30)
        self.connection.settimeout(None)
        self.connection.sendall(pack(HELLO, rank))
        self._unpacker = Unpacker()
        self._numbers = KnownNumbers()
        self._received = 0

    def send(self, requests: list[CollectiveRequest]) -> None:
        for request in requests:
            self.connection.sendall(self._numbers.pack(request))

    def receive(self, count: int) -> None:
        while self._received < count:
            for kind, content, payload in self._unpacker.feed(self.connection.recv(1 << 16)):
                if kind == RESPONSE:
                    self._numbers.learn(unpack_response(content, payload))
                    self._received += 1
                elif kind == NUMBERS:
                    self._received += len(content)
        self._received -= count


def _others(address: tuple[str, int], size: int, mode: str, operations: int) -> None:
    ranks = [_Rank(address, rank) for rank in range(1, size)]
    for _ in range(2):  # as in `measure`
        for batch in MODES[mode](operations):
            for rank in ranks:
                rank.send(batch)
            for rank in ranks:
                rank.receive(len(batch))
    ranks[0].connection.recv(1)  # blocks until rank 0 has ended and has counted everything


def measure(size: int, mode: str, operations: int) -> float:
    """The CPU seconds of rank 0 for one operation."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    others = multiprocessing.get_context("fork").Process(
        target=_others, args=(listener.getsockname(), size, mode, operations)
    )
    others.start()
    client = NegotiationClient(lambda _: None, 60)
    client.channel = Coordinator(
        listener,
        KEY,
        size,
        lambda *_: b"",
        client,
        timeout=60,
        warn_after=60,
    )
    for _ in range(2):  # in the first round, the ranks connect and receive the request numbers
        before = _cpu_seconds()
        for batch in MODES[mode](operations):
            for pending in [client.submit(request, lambda _: None) for request in batch]:
                client.wait(pending)
        took = _cpu_seconds() - before
    client.close()
    others.join()
    return took / operations


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def negotiate(report: Report, given: argparse.Namespace) -> None:
    operations = 2 * NAMES if given.quick else given.operations
    keys = [(mode, size) for mode in MODES for size in (RANKS[:2] if given.quick else given.ranks)]
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in keys}
    for _ in range(given.runs):
        for (mode, size), took in seconds.items():
            took.append(measure(size, mode, operations))
    for (mode, size), took in seconds.items():
        report.add(f"negotiation, {size} ranks, {mode}: CPU of rank 0", OURS, took)


if __name__ == "__main__":
    run_parts(__doc__, {"negotiate": negotiate}, options=(("--ranks", RANKS), ("--operations", 500)))
