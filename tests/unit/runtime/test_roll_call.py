"""The roll call of a job with spare hosts, on its leader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain.contract import Host, Launcher, Settings
from cloudtrain.link.secret import derive
from cloudtrain.observe import EventLog
from cloudtrain.runtime import roll_call
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.leader_client import LeaderClient
from cloudtrain.runtime.ports import free_port
from cloudtrain.runtime.supervisor.folder import JobFolder

SECRET = "the secret of the job under test, on all its hosts"


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    port, hosts = free_port(), ("a", "b", "c")
    settings = Settings(rendezvous=f"127.0.0.1:{port}", spare_hosts=1, join_timeout=20.0, host_timeout=60.0)
    paths = JobFolder(tmp_path / "job").host("a")
    paths.make()
    config = HostConfig(paths, settings, Host("a", hosts), {}, (), {}, Launcher(), hosts)
    caller = roll_call.Caller(config, {}, SignalSafeQueue(), SECRET, EventLog(paths.events, "a"))
    found: list[object] = []
    leads = threading.Thread(target=lambda: found.append(caller.find()), daemon=True)
    leads.start()
    keys = {name: derive(SECRET, name) for name in ("spawn", "tls")} | {"control": derive(SECRET, "places")}

    def join(host: str) -> LeaderClient:
        address = f"127.0.0.1:{port + 1}"
        return LeaderClient.join(host, address, keys, SignalSafeQueue(), 60, 60, restarts=True)

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
