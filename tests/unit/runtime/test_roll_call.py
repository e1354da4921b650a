"""The roll call of a job with spare hosts, on its leader."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain.contract import FailureReport, Host, JobStatus, Launcher, Settings
from cloudtrain.errors import PlatformError
from cloudtrain.link.secret import derive
from cloudtrain.observe import EventLog
from cloudtrain.runtime import roll_call
from cloudtrain.runtime.checkpoint_memory import MARK
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.leader_client import LeaderClient
from cloudtrain.runtime.outcome import HostOutcome
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.supervisor.folder import JobFolder

SECRET = "the secret of the job under test, on all its hosts"


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


Join = Callable[..., LeaderClient]


def make_caller(tmp_path: Path, host: str, port: int = 0) -> tuple[roll_call.Caller, Join]:
    """One of the hosts a, b and the spare c; and what joins the call as another one."""
    port, hosts = port or free_port(), ("a", "b", "c")
    settings = Settings(rendezvous=f"127.0.0.1:{port}", spare_hosts=1, join_timeout=20.0, host_timeout=60.0)
    paths = JobFolder(tmp_path / "job").host(host)
    paths.make()
    config = HostConfig(paths, settings, Host(host, hosts), {}, (), {}, Launcher(), hosts)
    caller = roll_call.Caller(config, {}, SignalSafeQueue(), SECRET, EventLog(paths.events, host))
    keys = {name: derive(SECRET, name) for name in ("spawn", "tls")} | {"control": derive(SECRET, "places")}

    def join(host: str) -> LeaderClient:
        address = f"127.0.0.1:{port + 1}"
        return LeaderClient.join(host, address, keys, SignalSafeQueue(), 60, 60, restarts=True)

    return caller, join


def test_the_patience_with_a_missing_host_may_last_longer_than_join_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spare host is there, and could take its place."""
    looks: list[float] = []
    passed = 0.0

    def clock() -> float:
        looks.append(passed)
        return passed

    monkeypatch.setattr(roll_call, "time", SimpleNamespace(monotonic=clock))
    caller, join = make_caller(tmp_path, "a")
    found: list[object] = []
    leads = threading.Thread(target=lambda: found.append(caller.find()), daemon=True)
    leads.start()
    clients = [join("c")]
    wait_until(lambda: caller._call and "c" in caller._call.present)
    passed = 21.0
    wait_until(lambda: not leads.is_alive() or looks.count(21.0) > 3)
    clients.append(join("b"))
    leads.join(60)
    assert isinstance(found[0], HostConfig), found
    assert found[0].host.hosts == ("a", "b")
    for client in clients:
        client.close()
    assert caller._call
    caller._call.complete()


def test_a_call_that_ends_by_an_error_fails_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(roll_call, "assign", judge)
    caller, _ = make_caller(tmp_path, "a")
    with pytest.raises(PlatformError, match=r"cannot give the hosts their places: .*Too many open files"):
        caller.find()


def test_a_spare_host_that_fails_while_the_job_completes_has_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    leader, join = make_caller(tmp_path, "a", port)
    leads = threading.Thread(target=leader.find, daemon=True)
    leads.start()
    spare, _ = make_caller(tmp_path, "c", port)
    copies = tmp_path / f"cloudtrain-{os.geteuid()}-{'0' * 16}"  # of an attempt in which it had a place
    copies.mkdir(0o700)
    (spare._config.paths.input_config / MARK).write_text(str(copies))
    put = spare._inbox.put

    def put_both(message: Any) -> None:
        put(message)
        if message["type"] == "over":
            put({"type": "failed", "report": FailureReport.host_lost("c", "no space", 0.0)})

    monkeypatch.setattr(spare._inbox, "put", put_both)
    spare._preparation = threading.Thread()  # it has prepared itself
    found: list[object] = []
    waits = threading.Thread(target=lambda: found.append(spare.find()), daemon=True)
    waits.start()
    other = join("b")
    leads.join(60)
    other.close()
    leader.end(HostOutcome(JobStatus.COMPLETED))
    waits.join(60)
    assert found == [HostOutcome(JobStatus.COMPLETED)]
    assert not copies.exists()
