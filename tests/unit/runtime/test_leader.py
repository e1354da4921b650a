"""The leader and its clients, over real sockets."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.link import handshake
from cloudtrain.link.conversation import Conversation
from cloudtrain.link.secret import derive
from cloudtrain.observe import EventLog, read_events
from cloudtrain.runtime import leader_client, leader_links
from cloudtrain.runtime.leader import LATE_SECONDS, Leader
from cloudtrain.runtime.leader_client import (
    Inbox,
    JoinInterrupted,
    LeaderClient,
    listen,
)
from cloudtrain.runtime.leader_links import Message
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.run_folder import REMOTE_SHELL_PROGRAM, spawn_address_path

HOSTS = ("algo-1", "algo-2")
SECRET = "the secret of the job under test"
KEYS = {purpose: derive(SECRET, purpose) for purpose in ("control", "spawn", "tls")}


class Cluster:
    """A leader and its clients."""

    def __init__(self, folder: Path, join_timeout: float = 30, host_timeout: float = 30) -> None:
        self.rendezvous = str(folder / "leader")
        self.leader = Leader(
            listen(self.rendezvous, "127.0.0.1"),
            HOSTS,
            KEYS,
            master=("h", 1),
            join_timeout=join_timeout,
            host_timeout=host_timeout,
            events=EventLog(folder / "events.jsonl", HOSTS[0]),
        )
        self.leader.start()
        self.inboxes: dict[str, Inbox] = {}

    def join(self, host: str) -> LeaderClient:
        self.inboxes[host] = queue.SimpleQueue()
        return LeaderClient.join(host, self.rendezvous, KEYS, self.inboxes[host], timeout=60)

    def receive(self, host: str) -> dict[str, Any]:
        return self.inboxes[host].get(timeout=60)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_hosts_notice_that_the_leader_has_failed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [cluster.join(host) for host in HOSTS]
    monkeypatch.setattr(cluster.leader, "_tick", lambda now: 1 / 0)
    assert [cluster.receive(host)["type"] for host in HOSTS] == ["lost", "lost"]
    for client in clients:
        client.close()
    cluster.leader.join()


def test_every_step_waits_for_all_hosts(cluster: Cluster) -> None:
    clients = {host: cluster.join(host) for host in HOSTS}
    for sent, received in (("ready", "start"), ("done", "finish"), ("uploaded", "complete")):
        clients["algo-1"].send({"type": sent})
        with pytest.raises(queue.Empty):
            cluster.inboxes["algo-1"].get(timeout=0.3)
        clients["algo-2"].send({"type": sent})
        assert [cluster.receive(host)["type"] for host in HOSTS] == [received, received]
    for client in clients.values():
        client.close()
    cluster.leader.join()


def test_all_hosts_receive_the_same_cause(cluster: Cluster) -> None:
    clients = {host: cluster.join(host) for host in HOSTS}
    echo = FailureReport(
        FailureClass.USER_ERROR, "Connection closed by peer", rank=0, exception_type="E", time=1
    )
    cause = FailureReport(FailureClass.USER_ERROR, "cause", rank=1, exception_type="E", time=2)
    clients["algo-1"].send({"type": "failed", "report": echo.to_dict()})
    clients["algo-2"].send({"type": "failed", "report": cause.to_dict()})
    for host in HOSTS:
        message = cluster.receive(host)
        assert (message["type"], message["report"]["message"]) == ("abort", "cause")


def test_the_leader_stays_for_a_host_that_uploads_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.runtime.leader.DISCONNECT_SECONDS", 0.0)
    cluster = Cluster(tmp_path, host_timeout=8.0)
    clients = {host: cluster.join(host) for host in HOSTS}
    report = FailureReport(FailureClass.USER_ERROR, "x", rank=0, exception_type="E", time=1)
    clients["algo-1"].send({"type": "failed", "report": report.to_dict()})
    assert [cluster.receive(host)["type"] for host in HOSTS] == ["abort", "abort"]
    clients["algo-2"].send({"type": "saving"})
    clients["algo-1"].close()
    with pytest.raises(queue.Empty):
        cluster.inboxes["algo-2"].get(timeout=9.5)
    clients["algo-2"].close()
    cluster.leader.join()
    assert cluster.receive("algo-2")["why"] == "this host has disconnected"


def test_the_first_failure_is_the_cause_with_any_clocks_of_the_hosts(cluster: Cluster) -> None:
    clients = {host: cluster.join(host) for host in HOSTS}
    now = time.time()
    second = FailureReport(FailureClass.USER_ERROR, "second", rank=0, exception_type="E", time=now - 3600)
    first = FailureReport(FailureClass.USER_ERROR, "first", rank=1, exception_type="E", time=now + 3600)
    clients["algo-1"].send({"type": "failed", "report": second.to_dict(), "ago": 0.1})
    clients["algo-2"].send({"type": "failed", "report": first.to_dict(), "ago": 2.0})
    for host in HOSTS:
        report = cluster.receive(host)["report"]
        assert report["message"] == "first"
        assert now - 3 < report["time"] < now


def test_a_stop_reaches_hosts_that_join_later(cluster: Cluster) -> None:
    cluster.join("algo-1").send({"type": "stopping"})
    assert cluster.receive("algo-1")["type"] == "stop"
    cluster.join("algo-2")
    assert cluster.receive("algo-2")["type"] == "stop"


def test_all_hosts_receive_the_choice_of_rank_0s_host(cluster: Cluster) -> None:
    clients = {host: cluster.join(host) for host in HOSTS}
    clients["algo-2"].send({"type": "ready", "horovod": "mine"})
    clients["algo-1"].send({"type": "ready", "horovod": "the leader's"})
    assert [cluster.receive(host)["horovod"] for host in HOSTS] == ["the leader's"] * 2


def test_a_command_runs_on_the_named_host(cluster: Cluster, tmp_path: Path) -> None:
    leader, _ = [cluster.join(host) for host in HOSTS]
    leader.write_spawn_address(Path(spawn_address_path(str(tmp_path))))
    program = [
        sys.executable,
        REMOTE_SHELL_PROGRAM,
        str(tmp_path),
        "-x",
        "cloudtrain-1",
        "echo 'a  b';",
        "exit 4",
    ]
    with subprocess.Popen(program) as shell:
        assert cluster.receive("algo-2") == {"type": "spawn", "command": "echo 'a  b'; exit 4"}
        assert cluster.inboxes["algo-1"].empty()
        assert shell.poll() is None
        shell.kill()


def test_a_command_for_a_host_that_is_gone_fails(cluster: Cluster, tmp_path: Path) -> None:
    leader = cluster.join("algo-1")
    leader.write_spawn_address(Path(spawn_address_path(str(tmp_path))))
    program = [sys.executable, REMOTE_SHELL_PROGRAM, str(tmp_path), "cloudtrain-1", "true"]
    assert subprocess.run(program, timeout=240, check=False).returncode == 255


def test_a_host_that_disconnects_is_lost(cluster: Cluster) -> None:
    cluster.join("algo-1")
    cluster.join("algo-2").close()
    message = cluster.receive("algo-1")
    assert (message["type"], message["report"]["host"]) == ("abort", "algo-2")


def test_a_host_that_never_joins_is_lost(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, join_timeout=3.0)
    cluster.join("algo-1")
    report = cluster.receive("algo-1")["report"]
    assert (report["failure_class"], report["host"]) == ("host-lost", "algo-2")
    assert "it never joined the job within 3 s" in report["message"]


def fail_on_the_leader(cluster: Cluster) -> None:
    """The first host joins, reports a failure and leaves."""
    leader = cluster.join("algo-1")
    cause = FailureReport(FailureClass.MISSING_DATA, "no such channel", host="algo-1")
    leader.send({"type": "failed", "report": cause.to_dict()})
    assert cluster.receive("algo-1")["type"] == "abort"
    leader.close()


def test_a_host_that_joins_after_the_failure_receives_it(cluster: Cluster) -> None:
    fail_on_the_leader(cluster)
    follower = cluster.join("algo-2")
    message = cluster.receive("algo-2")
    assert (message["type"], message["report"]["message"]) == ("abort", "no such channel")
    follower.close()
    start = time.monotonic()
    cluster.leader.join()
    assert time.monotonic() - start < LATE_SECONDS


def test_the_leader_leaves_on_request(cluster: Cluster) -> None:
    fail_on_the_leader(cluster)
    asked = iter([False, True])
    cluster.leader.join(lambda: next(asked))


def test_a_wait_is_reported_with_its_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, lines = itertools.count(), list[str]()
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    wait = leader_links.Waiting(600, lines.append)
    for _ in range(50):
        wait.report("algo-2, algo-3")
    assert lines == [f"waiting for algo-2, algo-3, {waited} s of 600 s" for waited in (10, 40)]


def knock(cluster: Cluster, purpose: str, key: bytes) -> tuple[socket.socket, handshake.Keys]:
    """A connection that proves that it knows a key."""
    host, _, port = Path(cluster.rendezvous).read_text().rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    keys = handshake.prove(connection, key, purpose, time.monotonic() + 60)
    connection.settimeout(60)
    return connection, keys


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xfe\n",
        json.dumps({"type": "join", "host": "algo-1", "token": ""}).encode() + b"\n",
        json.dumps({"type": "spawn", "token": "", "host_rank": 1, "command": "id"}).encode() + b"\n",
        b"x" * 10_000_000,
    ],
)
def test_unauthenticated_peers_are_disconnected_and_do_no_harm(cluster: Cluster, data: bytes) -> None:
    host, _, port = Path(cluster.rendezvous).read_text().rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(data)
        assert client.recv(1) == b""
    clients = [cluster.join(host) for host in HOSTS]
    for client in clients:
        client.send({"type": "ready"})
    assert cluster.receive("algo-2")["type"] == "start"
    assert cluster.leader.refused == 1


def test_a_host_that_has_joined_is_not_replaced(cluster: Cluster) -> None:
    first = cluster.join("algo-1")
    with pytest.raises(PlatformError, match="another process has joined as algo-1"):
        cluster.join("algo-1")
    with pytest.raises(PlatformError, match="'algo-9' is not a host of this job"):
        cluster.join("algo-9")
    first.send({"type": "stopping"})


@pytest.mark.parametrize("purpose", ["control", "spawn"])
def test_the_key_for_one_purpose_opens_no_other(cluster: Cluster, purpose: str) -> None:
    other = {"control": "spawn", "spawn": "control"}[purpose]
    with pytest.raises(handshake.NotAuthenticated):
        knock(cluster, purpose, KEYS[other])


@pytest.mark.parametrize(
    "text", ["[]", "{}", "", "[" * 100_000, '{"type": "join", "host": [], "number": 1, "received": 0}']
)
def test_a_damaged_first_message_harms_only_its_sender(cluster: Cluster, text: str) -> None:
    connection, keys = knock(cluster, "control", KEYS["control"])
    with connection:
        connection.sendall(keys.sealer().seal(Conversation().write(text.encode())))
        assert connection.recv(1) == b""
    cluster.join("algo-1").send({"type": "stopping"})
    assert cluster.receive("algo-1")["type"] == "stop"


@pytest.mark.parametrize(
    "message",
    [
        {"type": "failed", "ago": 10**400, "report": {"failure_class": "hang", "message": ""}},
        {"type": "positions", "ranks": {"positions": [[1, 2, True, "x"]], "limit": 1, "tail": []}},
        {"type": "positions", "ranks": {"positions": [[1, None, True, 2]], "limit": 1, "tail": []}},
        {"type": "positions", "ranks": {"positions": [], "limit": 1, "tail": [1]}},
        {"type": "noticed", "deadline": "soon", "reason": "no time"},
    ],
)
def test_an_invalid_message_of_a_host_does_not_end_the_leader(cluster: Cluster, message: Message) -> None:
    clients = {host: cluster.join(host) for host in HOSTS}
    clients["algo-2"].send(message)
    hang = FailureReport(FailureClass.HANG, "no heartbeat", rank=0, host="algo-1", time=1)
    clients["algo-1"].send({"type": "failed", "report": hang.to_dict()})
    while (answer := cluster.receive("algo-1"))["type"] == "dump":
        pass
    assert answer["type"] == "abort"


def test_large_stacks_of_a_hang_do_not_end_the_leader(cluster: Cluster) -> None:
    clients = {host: cluster.join(host) for host in HOSTS}
    hang = FailureReport(FailureClass.HANG, "no heartbeat", rank=0, host="algo-1", time=1)
    clients["algo-1"].send({"type": "failed", "report": hang.to_dict()})
    for host, rank in (("algo-1", 0), ("algo-2", 1)):
        request = cluster.receive(host)
        assert request["type"] == "dump"
        position = [rank, 3 - rank, rank == 0, 9.0]
        ranks = {"positions": [position], "limit": 5, "tail": []}
        clients[host].send({"type": "positions", "ranks": ranks})
        clients[host].send({"type": "stacks", "id": request["id"], "groups": [], "text": "x" * 40_000_000})
    for host in HOSTS:
        answer = cluster.receive(host)
        assert (answer["type"], answer["report"]["rank"]) == ("abort", 1)
        assert len(json.dumps(answer)) < 100_000


def test_stacks_are_written_although_the_job_ends_before_all_have_answered(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    clients = {host: cluster.join(host) for host in HOSTS}
    clients["algo-1"].send({"type": "inspect", "native": False, "why": "w"})
    assert cluster.receive("algo-2")["type"] == "dump"
    clients["algo-2"].send({"type": "stopping"})
    assert cluster.receive("algo-2")["type"] == "stop"
    for client in clients.values():
        client.close()
    cluster.leader.join()
    assert [event["event"] for event in read_events(tmp_path / "events.jsonl")] == ["stacks-taken"]


def test_a_host_with_a_wrong_secret_has_a_hint(cluster: Cluster) -> None:
    keys, inbox = {**KEYS, "control": derive("another", "control")}, queue.SimpleQueue[Message]()
    with pytest.raises(PlatformError, match=r"algo-2: .* does not know the secret of this job") as caught:
        LeaderClient.join("algo-2", cluster.rendezvous, keys, inbox, timeout=0.3)
    assert "same CLOUDTRAIN_SECRET" in caught.value.hint


def test_only_the_owner_can_read_the_address(cluster: Cluster, tmp_path: Path) -> None:
    assert Path(cluster.rendezvous).stat().st_mode & 0o777 == 0o600
    cluster.join("algo-1").write_spawn_address(tmp_path / "spawn")
    assert (tmp_path / "spawn").stat().st_mode & 0o777 == 0o600


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PlatformError, match=f"cannot listen on port {port}"):
            listen(f"algo-1:{port}", "")


def test_a_leader_that_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leader_links, "FIRST_NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(leader_client, "CONNECT_SECONDS", 0.1)
    inbox: Inbox = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = f"127.0.0.1:{full.getsockname()[1]}"
        (tmp_path / "leader").write_text(address)
        error = pytest.raises(PlatformError, match=f"leader was not found at {address} within")
        with socket.create_connection(full.getsockname()), error:  # like a firewall, it drops the others
            LeaderClient.join("algo-2", str(tmp_path / "leader"), KEYS, inbox, timeout=0.5)
    assert (
        f"waiting for the leader at {address}, which does not answer: is a firewall" in capfd.readouterr().out
    )
    inbox.put({"type": "signal"})
    with pytest.raises(JoinInterrupted):
        LeaderClient.join("algo-2", f"127.0.0.1:{free_port()}", KEYS, inbox, timeout=60)
