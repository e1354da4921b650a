"""The port that a Hugging Face Trainer reports its progress to, and what other processes can do to it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from cloudtrain.contract.documents import LARGEST_NUMBER
from cloudtrain.contract.trackers import TRAINER_TOKEN_FILE, TRAINER_URL
from cloudtrain.observe import EventLog
from cloudtrain.runtime import trainer_reports
from cloudtrain.runtime.trainer_reports import (
    LARGEST_HEAD,
    MOST_METRICS,
    MOST_PEERS,
    PATIENCE,
    TrainerReports,
    _count,
    _past_proxy,
    is_wanted,
)

warnings: list[str] = []
Start = Callable[..., TrainerReports]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[TrainerReports] = []
    warnings.clear()

    def start(*, taken: Any = (), environ: Mapping[str, str] | None = None) -> TrainerReports:
        events = EventLog(tmp_path / "events", "algo-1")
        started.append(TrainerReports(tmp_path, events, taken, environ or {}, warnings.append))
        return started[-1]

    yield start
    for reports in started:
        reports.close()


def post(variables: Mapping[str, str], metrics: Mapping[str, Any], percentage: int = 50) -> bool:
    """Post as ``KubeflowCallback._update_status`` of transformers 5.24 does. Returns whether it was received."""
    token = Path(variables[TRAINER_TOKEN_FILE]).read_text(encoding="utf-8").strip()
    status = {
        "lastUpdatedTime": datetime.now(timezone.utc).isoformat(),
        "progressPercentage": percentage,
        "estimatedRemainingSeconds": 10,
        "metrics": [{"name": str(name), "value": str(value)} for name, value in metrics.items()],
    }
    data = json.dumps({"trainerStatus": status}).encode("utf-8")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(variables[TRAINER_URL], data=data, headers=headers, method="POST")
    # urlopen() keeps the proxies of its first use in a process, which another test may have set
    opener = urllib.request.build_opener()
    try:
        with opener.open(request, timeout=100) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def taken(reports: TrainerReports) -> list[dict[str, Any]]:
    """The events of all reports so far: a report is received after those before it."""
    assert post(reports.variables, {"mark": time.monotonic()})
    events: list[dict[str, Any]] = []
    while not events or events[-1].get("name") != "mark":
        events += reports.take()
    return events[:-1]


def connect(reports: TrainerReports) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(reports.variables[TRAINER_URL]).port or 0), 5)


def test_a_report_becomes_events(start: Start) -> None:
    reports = start(taken={"grad_norm"})
    assert post(reports.variables, {"total_steps": 200}, 0)  # at the beginning of the training
    metrics = {"loss": 0.5, "grad_norm": 1.5, "note": "text", "current_step": 100, "total_steps": 200}
    assert post(reports.variables, {**metrics, "current_epoch": 0.5})
    assert post(reports.variables, {**metrics, "current_step": 120, "current_epoch": 0.6})
    assert post(reports.variables, {"loss": 0.5}, 100)  # at its end
    events = taken(reports)
    assert [event["step"] for event in events if event["event"] == "step"] == [100, 120, 200]
    assert {event["total"] for event in events if event["event"] == "step"} == {200}
    assert [(event["name"], event["value"]) for event in events if event["event"] == "metric"] == [
        ("loss", 0.5)
    ]
    assert all(abs(event["time"] - time.time()) < 60 and event["source"] == "algo-1" for event in events)


def test_only_this_user_can_read_the_token(start: Start) -> None:
    assert Path(start().variables[TRAINER_TOKEN_FILE]).stat().st_mode & 0o777 == 0o600


def test_a_proxy_is_passed_by(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"http_proxy": "http://192.0.2.1:9", "NO_PROXY": "example.org"}
    variables = start(environ=environ).variables
    for name, value in {**environ, **variables}.items():
        monkeypatch.setenv(name, value)
    assert post(variables, {})
    assert variables["no_proxy"] == "example.org,127.0.0.1"


@pytest.mark.parametrize("environ", [{TRAINER_URL: ""}, {"DISABLE_KUBEFLOW_INTEGRATION": "true"}])
def test_a_choice_of_the_user_counts(environ: dict[str, str]) -> None:
    assert is_wanted({})
    assert not is_wanted(environ)


@pytest.mark.parametrize("token", ["", "x", "0" * 64, "é" * 64])
def test_without_the_token_nothing_is_read(start: Start, token: str) -> None:
    reports = start()
    with connect(reports) as peer:
        body = b'{"trainerStatus": {"metrics": [{"name": "loss", "value": "1"}]}}'
        head = f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {token}\r\n\r\n"
        peer.sendall(head.encode() + body)
        assert peer.recv(100) == b""
    assert taken(reports) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"trainerStatus": 3}',
        b'{"trainerStatus": {"metrics": {}}}',
        b'{"trainerStatus": {"metrics": [{"name": "loss"}]}}',
        b'{"trainerStatus": {"metrics": [{"name": "current_step", "value": "-1"},'
        b' {"name": "total_steps", "value": "99999999999999999999999"}]}}',
        b'{"trainerStatus": {"metrics": [{"name": "current_step", "value": "one"},'
        b' {"name": "total_steps", "value": "2"}]}}',
        b"[" * 50_000,
    ],
)
def test_anything_else_with_the_token_is_ignored(start: Start, body: bytes) -> None:
    reports = start()
    token = Path(reports.variables[TRAINER_TOKEN_FILE]).read_text()
    with connect(reports) as peer:
        head = f"POST / HTTP/1.1\r\ncontent-length: {len(body)}\r\nauthorization: bearer {token}\r\n\r\n"
        for byte in (head.encode(), body):
            peer.sendall(byte)
        peer.recv(100)
    assert taken(reports) == []


def test_the_parts_of_a_request_may_arrive_one_by_one(start: Start) -> None:
    reports = start()
    token = Path(reports.variables[TRAINER_TOKEN_FILE]).read_text()
    body = b'{"trainerStatus": {"metrics": [{"name": "loss", "value": "1"}]}}'
    head = f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with connect(reports) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (head[:-3], head[-3:-1], head[-1:], body[:5], body[5:]):
            peer.sendall(part)
            time.sleep(0.05)
        assert peer.recv(100).startswith(b"HTTP/1.1 200")
    assert [event["value"] for event in taken(reports)] == [1]


def test_a_head_is_bounded(start: Start) -> None:
    reports = start()
    with connect(reports) as peer:
        peer.settimeout(PATIENCE / 2)
        peer.sendall(b"POST / HTTP/1.1\r\nX: " + b"x" * LARGEST_HEAD)
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(100) == b""
    assert taken(reports) == []


def test_numbers_of_steps_are_bounded() -> None:
    assert _count(str(LARGEST_NUMBER)) == LARGEST_NUMBER and _count("-1") == -1
    with pytest.raises(ValueError, match="60000 characters"):
        _count("1" * 60_000)


def test_reports_that_cannot_be_received_leave_nothing_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    threading.stack_size(1 << 47)  # more than the address space: no thread starts
    try:
        with pytest.raises(RuntimeError) as caught:  # it keeps all that the constructor has
            TrainerReports(tmp_path, EventLog(tmp_path / "events", "algo-1"), (), {}, warnings.append)
    finally:
        threading.stack_size(0)
    assert caught.value and len(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_hangs_does_not_delay_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning is a line of a file."""
    monkeypatch.setattr(trainer_reports, "CLOSE_SECONDS", 0.3)
    hanging = threading.Event()
    events = EventLog(tmp_path / "events", "algo-1")
    reports = TrainerReports(tmp_path, events, (), {}, lambda _: hanging.wait(100))
    reports._allowance = 0
    with connect(reports):
        time.sleep(0.1)
        began = time.monotonic()
        reports.close()
        assert 0.3 <= time.monotonic() - began < 60
    hanging.set()


def test_a_request_is_bounded(start: Start) -> None:
    reports = start()
    assert post(reports.variables, {f"{number:060}": number for number in range(500)})
    assert not post(reports.variables, {"x" * 100_000: 1})
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while not found and time.monotonic() < deadline:  # it responds before it reads
        found += reports.take()
    assert len(found) == MOST_METRICS


def test_neighbours_that_hold_connections_delay_no_report(start: Start) -> None:
    reports = start()
    held = [connect(reports) for _ in range(3 * MOST_PEERS)]
    began = time.monotonic()
    assert post(reports.variables, {"loss": 1})
    assert time.monotonic() - began < 60
    for peer in held:
        peer.close()


def test_a_neighbour_that_hammers_closes_the_port(start: Start) -> None:
    """From then on, a report fails immediately, and the port stays taken."""
    reports = start()
    with pytest.raises(
        (ConnectionRefusedError, ConnectionResetError)
    ):  # reset: it waited when the port closed
        for _ in range(2000):
            connect(reports).close()
    began = time.monotonic()
    assert not post(reports.variables, {"loss": 1})
    assert time.monotonic() - began < 60
    port = urlsplit(reports.variables[TRAINER_URL]).port
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    deadline = time.monotonic() + 60
    while not warnings and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(warnings) == 1


def test_each_variable_of_the_proxy_keeps_its_hosts() -> None:
    found = _past_proxy({"http_proxy": "http://192.0.2.1:9", "no_proxy": "a", "NO_PROXY": "b"})
    assert found == {"no_proxy": "a,127.0.0.1", "NO_PROXY": "b,127.0.0.1"}
    assert _past_proxy({"http_proxy": "http://192.0.2.1:9", "no_proxy": "*"}) == {}
