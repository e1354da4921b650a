"""The coordinator admits each rank once, and no one else."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError as FutureTimeout
from typing import Any

import pytest

from cloudtrain._system import memory
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.connection import NAMED, CoordinatorConnection, _reach
from cloudtrain.distributed.negotiation.coordinator import Coordinator
from cloudtrain.distributed.negotiation.messages import (
    HELLO,
    MESSAGE_BYTES,
    CollectiveRequest,
    CollectiveResponse,
    pack,
    pack_numbers,
)
from cloudtrain.link.authentication import BACKLOG
from cloudtrain.link.handshake import NotAuthenticated, prove

KEY = b"k" * 32


class _Job:
    """A coordinator of three ranks, and what it says about those that ended."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.address: tuple[str, int] = listener.getsockname()
        self.ended: list[tuple[int, str]] = []
        self.coordinator = Coordinator(
            listener,
            KEY,
            3,
            lambda *_: b"",
            self,
            timeout=240,
            warn_after=60,
        )

    def deliver(self, response: CollectiveResponse) -> None:
        pass

    def lose(self, rank: int, why: str, died: bool = True) -> None:
        self.ended.append((rank, why))

    def position(self) -> str:
        return "rank 0"

    def join(self, rank: Any, key: bytes = KEY) -> NegotiationClient:
        client = NegotiationClient(lambda _: None, 60)
        client.position = lambda: f"rank {rank}"  # type: ignore[method-assign,assignment,return-value]
        client.channel = CoordinatorConnection(
            self.address,
            key,
            rank,
            client,
            timeout=240,
        )
        return client

    def proved(self) -> socket.socket:
        """A connection that has proved itself, and said nothing yet."""
        connection = socket.create_connection(self.address, timeout=60)
        prove(connection, KEY, "ranks", time.monotonic() + 60)
        connection.settimeout(10)
        return connection


@pytest.fixture
def job() -> Iterator[_Job]:
    started = _Job()
    yield started
    started.coordinator.close()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def wait_until_lost(client: NegotiationClient) -> str:
    wait_until(lambda: 0 in client.lost)
    return client.lost[0]


def test_each_rank_joins_once(job: _Job) -> None:
    first = job.join(1)
    wait_until(lambda: job.coordinator.positions() == {0: "rank 0", 1: "rank 1"})
    assert wait_until_lost(job.join(1)) == "refused this process: rank 1 is here already, or does not exist"
    assert first.positions() == {0: "rank 0", 1: "rank 1"}
    assert job.ended == [], "who was refused has not ended"
    first.close()
    wait_until(lambda: 1 in dict(job.ended))
    assert "refused" in wait_until_lost(job.join(1)), "a rank that has ended is not replaced"


@pytest.mark.parametrize("rank", [0, 3, -1, True, "1", None, [1]])
def test_only_ranks_of_the_job_join(job: _Job, rank: object) -> None:
    assert "refused this process" in wait_until_lost(job.join(rank))
    assert job.coordinator.positions() == {0: "rank 0"}


def test_without_the_key(job: _Job) -> None:
    with pytest.raises(NotAuthenticated, match="does not know the secret of this job"):
        job.join(1, b"another key")
    assert job.coordinator.positions() == {0: "rank 0"}


def test_a_rank_sends_nothing_to_a_coordinator_without_the_key() -> None:
    """Such as one whose address another user has put into the store."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heard: list[bytes] = []

        def pretend() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(4096))
                connection.sendall(bytes(64))
                heard.append(connection.recv(4096))

        thread = threading.Thread(target=pretend)
        thread.start()
        job = object.__new__(_Job)
        job.address = listener.getsockname()
        with pytest.raises(NotAuthenticated):
            job.join(1)
        thread.join(60)
    assert len(heard[0]) == 48
    assert heard[1:] == [b""], "the rank proved itself to someone else"


@pytest.mark.parametrize("length", [2000, MESSAGE_BYTES + 1])
def test_messages_are_bounded(job: _Job, length: int) -> None:
    """Before and after a rank has said who it is. Nothing is kept of a message that is too long."""
    with job.proved() as connection:
        if length > MESSAGE_BYTES:
            connection.sendall(pack(HELLO, 1))
        connection.sendall(length.to_bytes(4, "big") + bytes(4))
        assert connection.recv(1) == b""
    if length > MESSAGE_BYTES:
        wait_until(lambda: bool(job.ended))
        assert f"a message of {length + 8} bytes is longer than" in job.ended[0][1]


def test_another_message_than_the_first(job: _Job) -> None:
    with job.proved() as connection:
        connection.sendall(pack("request", [1]))
        assert connection.recv(1) == b""


def test_a_number_that_was_never_assigned(job: _Job) -> None:
    with job.proved() as connection:
        connection.sendall(pack(HELLO, 1) + pack_numbers([3]))
        assert connection.recv(1) == b""
    wait_until(lambda: bool(job.ended))
    assert "there is no request 3" in job.ended[0][1]


def test_operations_that_repeat(job: _Job) -> None:
    """Through the real connections: responses arrive in one order on all ranks, whether they are numbers or not."""
    clients = [job.join(1), job.join(2)]
    for step in range(4):
        requests = [
            CollectiveRequest("allreduce", f"allreduce:{name}") for name in ("a", "b", f"step {step}")
        ]
        orders: list[list[str]] = [[] for _ in clients]
        pending = [
            (client, client.submit(request, lambda response, order=order: order.append(response.key)))
            for client, order in zip(clients, orders, strict=True)
            for request in requests
        ]
        for request in requests:
            job.coordinator.announce(request)
        for client, each in pending:
            client.wait(each)
        assert orders[0] == orders[1] == [request.key for request in requests]
    for client in clients:
        client.close()


def test_a_child_forked_after_the_end(job: _Job) -> None:
    job.coordinator.close()
    job.coordinator.close_in_child()
    job.coordinator = _Job().coordinator


def test_a_rank_connects_when_a_full_backlog_drains() -> None:
    name = f"test-{os.getpid()}"
    with memory.listen(name, 1) as listener, ThreadPoolExecutor(1) as executor:
        filling = []
        with pytest.raises(BlockingIOError):
            while True:
                filling.append(memory.connect(name, 1))
        arriving = executor.submit(_reach, (name, NAMED), time.monotonic() + 120)
        with pytest.raises(FutureTimeout):
            arriving.result(0.2)
        listener.accept()[0].close()
        arriving.result(120).close()
        for connection in filling:
            connection.close()
