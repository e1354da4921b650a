"""A network between a host and the leader that goes down and comes back, over real sockets."""

from __future__ import annotations

import queue
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.link.handshake import CHALLENGE_BYTES
from cloudtrain.link.secret import derive
from cloudtrain.observe import EventLog
from cloudtrain.runtime.leader import Leader
from cloudtrain.runtime.leader_client import Inbox, LeaderClient, listen

HOSTS = ("algo-1", "algo-2")
KEYS = {
    purpose: derive("the secret of the job under test", purpose) for purpose in ("control", "spawn", "tls")
}
TIMEOUT = 9.0


class Wire:
    """Forwards connections to the leader. While it is down, nothing passes, and nothing is closed."""

    def __init__(self, leader: tuple[str, int]) -> None:
        self.leader = leader
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.up = True
        self.is_down = threading.Event()
        self.mute = False
        """Whether nothing of the leader passes after its part of the handshake."""
        self.answered: dict[socket.socket, int] = {}
        """The bytes that have passed on each connection to the leader."""
        self.over = False
        self.connections = 0
        self.pairs: dict[socket.socket, socket.socket] = {}
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.over:
            if not self.up:
                self.is_down.set()
                time.sleep(0.02)
                continue
            late = {end for end, count in self.answered.items() if self.mute and count >= CHALLENGE_BYTES}
            ends = [end for end in self.pairs if end not in late]
            for ready in select.select([self.listener, *ends], [], [], 0.02)[0]:
                if ready is self.listener:
                    near, far = self.listener.accept()[0], socket.create_connection(self.leader)
                    self.pairs |= {near: far, far: near}
                    self.answered[far] = 0
                    self.connections += 1
                elif ready in self.pairs:
                    self.forward(ready)

    def forward(self, ready: socket.socket) -> None:
        try:
            data = ready.recv(1 << 16)
            if ready in self.answered:
                self.answered[ready] += len(data)
            self.pairs[ready].sendall(data)
        except OSError:
            data = b""
        if not data:
            other = self.pairs.pop(ready)
            del self.pairs[other]
            ready.close()
            other.close()

    def take_down(self) -> None:
        """Let nothing pass any more; what the thread forwards right now has passed on return."""
        self.is_down.clear()
        self.up = False
        assert self.is_down.wait(60)

    def close(self) -> None:
        self.over = True
        self.thread.join()
        for end in (self.listener, *self.pairs):
            end.close()


class Pair:
    """A leader, and two hosts: the second one is behind a wire."""

    def __init__(self, folder: Path) -> None:
        rendezvous = str(folder / "leader")
        listener = listen(rendezvous, "127.0.0.1")
        self.wire = Wire(listener.getsockname())
        self.folder = folder
        self.leader = self.lead(listener)
        self.inboxes: list[Inbox] = [queue.SimpleQueue(), queue.SimpleQueue()]
        self.clients = [
            LeaderClient.join(host, address, KEYS, inbox, host_timeout=TIMEOUT)
            for host, address, inbox in zip(HOSTS, (rendezvous, self.wire.address), self.inboxes, strict=True)
        ]

    def lead(self, listener: socket.socket, *, restarts: bool = False) -> Leader:
        leader = Leader(
            listener,
            HOSTS,
            KEYS,
            master=("h", 1),
            join_timeout=60,
            host_timeout=TIMEOUT,
            restarts=restarts,
            events=EventLog(self.folder / "events.jsonl", HOSTS[0]),
        )
        leader.start()
        return leader

    def receive(self, host: int) -> dict[str, Any]:
        return self.inboxes[host].get(timeout=60)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.wire.up = True
    for client in pair.clients:
        client.send({"type": "stopping"})
    for client in pair.clients:
        client.close()
    pair.leader.join()
    pair.wire.close()


def test_messages_of_an_outage_arrive_once_afterwards(pair: Pair) -> None:
    pair.clients[1].send({"type": "ready"})
    time.sleep(0.3)
    pair.wire.take_down()
    for number in range(50):
        pair.clients[1].send({"type": "noticed", "deadline": number, "reason": "from 2"})
        pair.clients[0].send({"type": "noticed", "deadline": number, "reason": "from 1"})
    time.sleep(TIMEOUT * 0.5)
    assert pair.inboxes[1].empty()
    pair.wire.up = True
    for host in (0, 1):
        notices = [pair.receive(host) for _ in range(100)]
        for source in ("from 1", "from 2"):
            assert [n["deadline"] for n in notices if n["reason"] == source] == list(range(50))
    pair.clients[0].send({"type": "ready"})
    assert [pair.receive(host)["type"] for host in (0, 1)] == ["start", "start"]
    assert pair.wire.connections >= 2, "the host did not connect again"


def test_a_host_returns_though_the_answer_of_the_leader_is_late(pair: Pair) -> None:
    """On a network with long delays, the host gives up connections that the leader has taken."""
    pair.wire.take_down()
    time.sleep(TIMEOUT * 0.4)
    pair.wire.mute = pair.wire.up = True
    time.sleep(TIMEOUT * 0.25)
    pair.wire.mute = False
    for client in pair.clients:
        client.send({"type": "ready"})
    assert [pair.receive(host)["type"] for host in (0, 1)] == ["start", "start"]


def test_a_longer_outage_is_the_loss_of_a_host(pair: Pair) -> None:
    pair.wire.take_down()
    began = time.monotonic()
    report, lost = pair.receive(0), pair.receive(1)
    assert (report["type"], report["report"]["host"]) == ("abort", "algo-2")
    assert "no message for 9 s" in report["report"]["message"]
    assert lost == {"type": "lost", "why": "no message for 9 s"}
    assert TIMEOUT - 2.5 < time.monotonic() - began < TIMEOUT + 45


def test_the_end_of_a_job_reaches_a_host_that_was_cut_off(pair: Pair) -> None:
    for state, answer in (("ready", "start"), ("done", "finish")):
        for client in pair.clients:
            client.send({"type": state})
        assert [pair.receive(host)["type"] for host in (0, 1)] == [answer, answer]
    pair.clients[1].send({"type": "uploaded"})
    time.sleep(0.3)
    pair.wire.take_down()
    pair.clients[0].send({"type": "uploaded"})
    assert pair.receive(0)["type"] == "complete"
    pair.clients[0].close()
    time.sleep(TIMEOUT * 0.5)
    pair.wire.up = True
    assert pair.receive(1)["type"] == "complete"


def test_a_host_that_returns_to_another_leader_is_lost_and_does_not_count_there(pair: Pair) -> None:
    """All hosts were restarted meanwhile; only this one has not noticed."""
    listener = listen("h:0", "")
    other = pair.lead(listener, restarts=True)
    pair.wire.take_down()
    cut_off = dict(pair.wire.pairs)
    pair.wire.pairs.clear()
    port = listener.getsockname()[1]
    pair.wire.leader, pair.wire.up = ("127.0.0.1", port), True
    lost = pair.receive(1)
    assert lost["type"] == "lost"
    assert lost["why"].endswith("the leader refuses this host: algo-2 has joined another leader before")

    # the next process of the same host is welcome
    inboxes: list[Inbox] = [queue.SimpleQueue(), queue.SimpleQueue()]
    clients = [
        LeaderClient.join(host, f"127.0.0.1:{port}", KEYS, inbox, restarts=True)
        for host, inbox in zip(HOSTS, inboxes, strict=True)
    ]
    for client in clients:
        client.send({"type": "ready"})
    assert inboxes[1].get(timeout=60)["type"] == "start"
    clients[0].send({"type": "stopping"})
    for client in clients:
        client.close()
    other.join()
    for end in cut_off:
        end.close()
