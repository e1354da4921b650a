"""One job's objects, kept in memory by watches of a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_roles import grant

from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.kinds import JOB
from cloudtrain.platforms.kubernetes.life import job_watch
from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch
from cloudtrain.platforms.kubernetes.life.objects import Snapshot

KINDS = ["events", "jobs", "pods"]


def make_pod(place: Namespace, name: str, *, is_of_job: bool = True) -> None:
    """A pod of the job ``toy``, or one that has its labels only. No node runs it."""
    container = {"name": "train", "image": "img", "env": [{"name": "A", "value": "1"}]}
    spec = {"containers": [container], "schedulerName": "none"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "toy"}
    owner["uid"] = place.bench.get("jobs", place.name, "toy")["metadata"]["uid"]
    metadata = {"name": name, "labels": {"cloudtrain/job": "toy"}}
    metadata |= {"ownerReferences": [owner]} if is_of_job else {}
    place.bench.create("pods", place.name, {"metadata": metadata, "spec": spec})


def make_job(place: Namespace) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "img"}]}}
    spec = {"template": template, "parallelism": 0}
    place.bench.create("jobs", place.name, {"metadata": {"name": "toy"}, "spec": spec})


@pytest.fixture
def watch(kubernetes: Namespace) -> Iterator[JobWatch]:
    make_job(kubernetes)
    watch = JobWatch(Api.connect(), JOB, "toy")
    kubernetes.proxy.requests.clear()
    yield watch
    watch.close()


def lists_and_watches(place: Namespace) -> tuple[Counter[str], Counter[str]]:
    """How often each kind was listed, and watched."""
    lists: Counter[str] = Counter()
    watches: Counter[str] = Counter()
    for request in list(place.proxy.requests):
        path, _, query = request.removeprefix("GET ").partition("?")
        (watches if "watch=true" in query else lists)[path.rpartition("/")[2]] += 1
    return lists, watches


def names(snapshot: Snapshot) -> list[str]:
    return [pod["metadata"]["name"] for pod in snapshot.pods]


def until(watch: JobWatch, condition: Callable[[Snapshot], object]) -> Snapshot:
    deadline = time.monotonic() + 60
    while not condition(snapshot := watch.snapshot()):
        assert time.monotonic() < deadline, snapshot
        watch.wait(0.2)
    return snapshot


def test_one_look_lists_and_more_looks_watch(kubernetes: Namespace, watch: JobWatch) -> None:
    assert watch.snapshot().owner is not None
    assert not watch.is_watching
    make_pod(kubernetes, "toy-0-other", is_of_job=False)
    make_pod(kubernetes, "toy-0-abcde")
    snapshot = until(watch, lambda found: names(found) == ["toy-0-abcde"])
    assert watch.is_watching
    assert snapshot.owner is not None
    assert "managedFields" not in snapshot.owner["metadata"]
    assert "env" not in snapshot.pods[0]["spec"]["containers"][0]
    for _ in range(200):
        watch.snapshot()
    for name in ("toy-0-abcde", "toy-0-other"):
        kubernetes.bench.delete("pods", kubernetes.name, name)
    kubernetes.bench.delete("jobs", kubernetes.name, "toy")
    until(watch, lambda found: not found.pods and found.owner is None and found.deleted)
    assert lists_and_watches(kubernetes) == (Counter(KINDS), Counter(KINDS))


def open_watches(place: Namespace, watch: JobWatch) -> None:
    """Wait until each kind is watched."""
    # the proxy counts a request before its connection can be cut
    until(watch, lambda _: len(lists_and_watches(place)[1]) == len(KINDS) == place.proxy.watches(place.name))


def test_watches_that_are_cut_or_expire(kubernetes: Namespace, watch: JobWatch) -> None:
    open_watches(kubernetes, watch)
    kubernetes.proxy.cut_watches()
    make_pod(kubernetes, "toy-0-abcde")
    assert not until(watch, lambda found: len(found.pods) == 1).problem
    assert lists_and_watches(kubernetes)[0] == Counter(KINDS)
    until(watch, lambda _: kubernetes.proxy.expire_watches() and lists_and_watches(kubernetes)[0]["pods"] > 1)
    make_pod(kubernetes, "toy-1-abcde")
    assert not until(watch, lambda found: len(found.pods) == 2).problem


def test_an_outage_is_reported_and_survived(
    kubernetes: Namespace, watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "HICCUP", 0.1)
    open_watches(kubernetes, watch)
    kubernetes.proxy.faults.refuse("watch=true", 503, times=1000)
    problem = until(watch, lambda found: found.problem or kubernetes.proxy.cut_watches() < 0).problem
    assert "this is the state of " in problem
    kubernetes.proxy.faults.clear()
    make_pod(kubernetes, "toy-0-abcde")
    assert names(until(watch, lambda found: not found.problem and found.pods)) == ["toy-0-abcde"]


def test_a_job_has_ended_once_the_last_changes_of_its_pods_arrived(
    kubernetes: Namespace, watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its logs would end before they were read, and its failure would have no reason."""
    # an outage that lasts longer is the problem that is reported
    monkeypatch.setattr(job_watch, "HICCUP", 600.0)
    open_watches(kubernetes, watch)
    # the Job's controller has written its first status, which would otherwise replace the one below
    until(watch, lambda found: (found.owner or {}).get("status", {}).get("startTime"))
    kubernetes.proxy.faults.refuse("pods.watch=true", 503, times=1000)
    kubernetes.proxy.cut_watches()
    make_pod(kubernetes, "toy-0-abcde")
    complete = {"type": "Complete", "status": "True"}
    kubernetes.bench.patch("jobs", kubernetes.name, "toy", {"status": {"conditions": [complete]}}, "status")
    behind = until(watch, lambda found: "last changes of its pods" in found.problem)
    assert behind.owner is not None and not behind.owner["status"].get("conditions")
    kubernetes.proxy.faults.clear()
    ended = until(watch, lambda found: (found.owner or {}).get("status", {}).get("conditions"))
    assert names(ended) == ["toy-0-abcde"]


def test_watches_end_without_readers_and_restart(
    kubernetes: Namespace, watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "IDLE_SECONDS", 0.3)
    monkeypatch.setattr(job_watch, "TICK", 0.1)
    others = set(threading.enumerate())
    until(watch, lambda _: watch.is_watching)
    deadline = time.monotonic() + 60
    while watch.is_watching or any("watch-" in one.name for one in {*threading.enumerate()} - others):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    make_pod(kubernetes, "toy-0-abcde")
    monkeypatch.setattr(job_watch, "IDLE_SECONDS", 600.0)
    monkeypatch.setattr(job_watch, "FRESH_SECONDS", 0.0)
    assert names(watch.snapshot()) == ["toy-0-abcde"]
    assert watch.is_watching


@pytest.mark.soak
def test_a_clock_that_jumps_replaces_the_connections(
    kubernetes: Namespace, watch: JobWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_watches(kubernetes, watch)
    offset = time.time() - time.monotonic() + 3600
    monkeypatch.setattr(job_watch, "_clock_offset", lambda: offset)
    make_pod(kubernetes, "toy-0-abcde")
    assert names(watch.snapshot()) == ["toy-0-abcde"]
    assert lists_and_watches(kubernetes) == (Counter(KINDS), Counter(KINDS * 2))


PAUSED = """
import sys, time
from cloudtrain.platforms.kubernetes.life import job_watch
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.kinds import JOB
job_watch.TICK, job_watch.PAUSE = 0.1, 0.5
watch = job_watch.JobWatch(Api.connect(), JOB, "toy")
while True:
    print(len(watch.snapshot().pods), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.soak
def test_a_process_that_was_paused_looks_again(kubernetes: Namespace, watch: JobWatch) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PAUSED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin and child.stdout

    def look() -> int:
        assert child.stdin and child.stdout
        child.stdin.write("\n")
        child.stdin.flush()
        return int(child.stdout.readline())

    try:
        assert int(child.stdout.readline()) == look() == 0
        deadline = time.monotonic() + 60
        while len(lists_and_watches(kubernetes)[1]) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGSTOP)
        kubernetes.proxy.expire_watches()
        make_pod(kubernetes, "toy-0-abcde")
        time.sleep(0.8)
        os.kill(child.pid, signal.SIGCONT)
        assert look() == 1
    finally:
        child.kill()
        child.communicate()


def test_a_job_without_the_right_to_see_events(
    kubernetes: Namespace, watch: JobWatch, tmp_path: Path
) -> None:
    rules = [
        {"apiGroups": ["", "batch"], "resources": ["pods", "jobs"], "verbs": ["get", "list", "watch"]},
    ]
    grant(kubernetes.bench, kubernetes.name, rules=rules)
    snapshot = watch.snapshot()
    assert snapshot.owner is not None
    assert snapshot.unseen == {"events": f"alice may not list events in the namespace {kubernetes.name}"}
    assert json.dumps(watch.snapshot().events) == "[]"
