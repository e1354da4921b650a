"""The client, when the API server fails, or a proxy in front of it: over real HTTP."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from faulty_server import (
    FaultyRequest,
    FaultyServer,
    break_off,
    changes,
    drip,
    drop,
    faulty_server,
    json_answer,
    page,
    status,
)

from cloudtrain.contract import JobStatus
from cloudtrain.errors import InDoubt, JobExists, PlatformError
from cloudtrain.index import find_job
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.kubernetes.api import transport
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeAlreadyExists,
    KubeError,
    KubeInvalid,
    KubeTooLarge,
    KubeUnauthorized,
    KubeUnreachable,
)
from cloudtrain.platforms.kubernetes.api.kinds import CONFIG_MAP, JOB, JOB_SET, POD
from cloudtrain.platforms.kubernetes.api.watch import Reflector
from cloudtrain.platforms.kubernetes.job import KubernetesJob, recall, remember
from cloudtrain.platforms.kubernetes.life.job_watch import JobWatch
from cloudtrain.platforms.kubernetes.places import Places, Ticket
from cloudtrain.submission import Submission, prepare

MAPS = "/api/v1/namespaces/ns/configmaps"
PODS = "/api/v1/namespaces/ns/pods"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
JOBS = "/apis/batch/v1/namespaces/ns/jobs"
EVENTS = "/api/v1/namespaces/ns/events"
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 5 (9)"}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as server:
        yield server


@pytest.fixture
def api(server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
    return Api.connect()


def pod(name: str, version: int) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


def pods(*items: dict[str, object], version: int) -> dict[str, object]:
    return {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": list(items)}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def submission(folder: Path, rendering: str) -> Submission:
    (folder / "train.py").touch()
    fields = {"entry_point": str(folder / "train.py"), "image_uri": "i", "platform": "kubernetes"}
    options = {"rendering": rendering, "discard_outputs": True}
    return prepare({**fields, "job_name": "toy", "platform_options": options}, defaults={})


TOY = {
    "kind": "Job",
    "metadata": {"name": "toy", "uid": "1", "labels": {"cloudtrain/job": "toy"}},
    "spec": {"suspend": False},
}


def test_a_retry_waits_as_long_as_the_server_requests(api: Api, server: FaultyServer) -> None:
    busy = status(429, "TooManyRequests", Retry_After="1")
    server.will("GET", f"{MAPS}/one", busy, json_answer(MAP))
    began = time.monotonic()
    assert api.get(CONFIG_MAP, "one") == MAP
    assert time.monotonic() - began >= 1.0


def test_the_time_is_that_of_the_server(api: Api, server: FaultyServer) -> None:
    """Else a client whose clock is 5 minutes fast would give a job up that has waited for seconds."""

    def ahead(request: FaultyRequest) -> None:
        request.date_time_string = lambda timestamp=None: formatdate(time.time() + 300, usegmt=True)  # type: ignore[method-assign]
        json_answer(MAP)(request)
        del request.date_time_string  # the next request comes over the same connection

    assert abs(api.now() - time.time()) < 1
    server.will("GET", f"{MAPS}/one", ahead, json_answer(MAP))
    for expected in (300, 0):
        api.get(CONFIG_MAP, "one")
        assert abs(api.now() - time.time() - expected) < 100


def test_a_new_job_is_not_taken_for_the_last_one_of_its_name(
    server: FaultyServer, tmp_path: Path, api: Api
) -> None:
    place = "faulty/ns/jobs.batch"
    remember(JobDescription("toy", "kubernetes", JobStatus.COMPLETED, time.time()), place)
    job = submission(tmp_path, "job")
    assert recall("toy", place)
    with pytest.raises(PlatformError):  # as if the client had been killed
        job.submit()
    assert recall("toy", place) is None


def test_a_name_is_of_one_job_in_all_renderings(server: FaultyServer, tmp_path: Path, api: Api) -> None:
    """Else a client that is killed while it submits the name again would not find the job that runs."""
    places, group = Places(), "/apis/jobset.x-k8s.io"
    places.tickets.write("toy", Ticket("faulty", "ns", "job", uid="1"))
    server.will("GET", group, json_answer({"versions": [{"version": "v1alpha2"}]}))
    server.will("GET", f"{group}/v1alpha2", json_answer({"resources": [{"kind": "JobSet"}]}))
    server.will("GET", JOBS, json_answer({"items": [TOY]}))
    for path in (PODS, EVENTS):
        server.will("GET", path, json_answer({"items": []}))
    with pytest.raises(JobExists, match="runs or waits in the namespace ns"):
        submission(tmp_path, "jobset").submit()
    # as if the job were another client's, and this one had been killed
    places.tickets.write("toy", Ticket("faulty", "ns", "jobset"))
    assert places.find("toy").kind == JOB_SET
    server.will("GET", f"{JOBS}/toy", json_answer(TOY))
    assert places.find("toy").kind == JOB


def test_a_refused_job_that_may_not_be_deleted_is_found(
    server: FaultyServer, tmp_path: Path, api: Api
) -> None:
    def created(request: FaultyRequest) -> None:
        found = json.loads(_sent(server))
        json_answer({**found, "metadata": {**found["metadata"], "uid": "1"}})(request)

    job = submission(tmp_path, "job")
    server.will("POST", JOBS, created)
    server.will("GET", f"{JOBS}/toy", created)
    refused = status(403, "Forbidden")
    server.will("POST", "/api/v1/namespaces/ns/services", refused)
    server.will("DELETE", f"{JOBS}/toy", refused)
    with pytest.raises(InDoubt, match=r"(?s)create services .*kubectl delete -n ns jobs.batch toy"):
        job.submit()
    assert Places().tickets.read("toy") == Ticket("faulty", "ns")
    assert find_job("toy")


def test_pods_that_copy_the_labels_of_a_job_are_not_its_hosts(server: FaultyServer, api: Api) -> None:
    job = {"metadata": {"name": "toy", "uid": "1", "creationTimestamp": "2026-11-28T00:00:00Z"}}
    server.will("GET", JOBS, json_answer({"items": [job]}), json_answer({"items": []}))
    copied, own = pod("copied", 1), pod("own", 2)
    for found, owner in ((copied, "other"), (own, "1")):
        metadata = {**found["metadata"], "creationTimestamp": "2026-11-28T00:00:01Z"}  # type: ignore[dict-item]
        found["metadata"] = {**metadata, "ownerReferences": [{"kind": "Job", "name": "toy", "uid": owner}]}
    server.will("GET", PODS, json_answer(pods(copied, own, version=2)))
    server.will("GET", EVENTS, json_answer({"items": []}))
    watch = JobWatch(api, JOB, "toy")
    for has_owner in (True, False):
        found = watch.snapshot(newest=True)
        assert bool(found.owner) == has_owner
        assert [one["metadata"]["name"] for one in found.pods] == ["own"]


def test_who_may_not_list_pods_may_stop_a_job(server: FaultyServer, api: Api) -> None:
    server.will("GET", JOBS, json_answer({"items": [TOY]}))
    server.will("GET", PODS, status(403, "Forbidden"))
    for method in ("GET", "PATCH"):
        server.will(method, f"{JOBS}/toy", json_answer(TOY))
    KubernetesJob(api, JOB, "toy").stop()
    assert len(server.asked("PATCH", f"{JOBS}/toy")) == 1


def test_tries_again_after_errors_and_broken_connections(api: Api, server: FaultyServer) -> None:
    failing = status(503, "ServiceUnavailable", Retry_After="0")
    server.will("GET", f"{MAPS}/one", failing, drop, page(502, "<html>bad gateway"), json_answer(MAP))
    assert api.get(CONFIG_MAP, "one") == MAP


def test_a_server_whose_first_answer_breaks_off_is_there(
    api: Api, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.api.transport.NEW_SECONDS", 0.0)
    server.will("GET", f"{MAPS}/one", break_off, json_answer(MAP))
    assert api.get(CONFIG_MAP, "one") == MAP


def test_gives_up_on_an_error_that_stays(
    api: Api, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.api.transport.RETRY_SECONDS", 2.0)
    server.will("GET", f"{MAPS}/one", status(500, "InternalError", "etcdserver: request timed out"))
    with pytest.raises(KubeError, match="cannot get configmaps now: etcdserver: request timed out"):
        api.get(CONFIG_MAP, "one")
    assert len(server.asked("GET", f"{MAPS}/one")) > 1


def test_a_create_whose_answer_is_lost_is_looked_up(api: Api, server: FaultyServer) -> None:
    server.will("POST", MAPS, drop, status(409, "AlreadyExists"))
    server.will("GET", f"{MAPS}/one", lambda request: request.send(200, _sent(server)))
    assert api.create(MAP)["metadata"]["name"] == "one"
    assert len(server.asked("POST", MAPS)) == 2


def test_an_object_of_another_client_stays_an_error(api: Api, server: FaultyServer) -> None:
    server.will("POST", MAPS, drop, status(409, "AlreadyExists"))
    server.will("GET", f"{MAPS}/one", json_answer(MAP))
    with pytest.raises(KubeAlreadyExists):
        api.create(MAP)


def test_an_object_with_a_generated_name_is_not_made_twice(api: Api, server: FaultyServer) -> None:
    server.will("POST", MAPS, drop)
    with pytest.raises(KubeUnreachable, match="the connection broke"):
        api.create({**MAP, "metadata": {"generateName": "one-"}})
    assert len(server.asked("POST", MAPS)) == 1


@pytest.mark.soak
def test_a_delete_whose_answer_is_lost(api: Api, server: FaultyServer) -> None:
    server.will("DELETE", f"{MAPS}/one", drop, status(404, "NotFound"))
    api.delete(CONFIG_MAP, "one", uid="1")
    assert [body["preconditions"] for *_, body in server.seen] == [{"uid": "1"}] * 2


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (page(200, "<html>Log in"), KubeError, "is not an API server: it answered with text/html"),
        (page(302, "", Location="https://sso.test/"), KubeError, "redirects to https://sso.test/"),
        (
            page(401, "no"),
            KubeUnauthorized,
            r"does not accept the credentials of the context faulty \(a token\)",
        ),
        (
            page(400, "Client sent an HTTP request to an HTTPS server."),
            KubeError,
            r"http://127.0.0.1:\d+ speaks HTTPS",
        ),
        (status(400, "BadRequest", "container is waiting to start"), KubeInvalid, "is waiting to start"),
    ],
)
def test_answers_of_others(
    api: Api, server: FaultyServer, answer: Callable[..., None], kind: type[KubeError], message: str
) -> None:
    server.will("GET", f"{MAPS}/one", answer)
    with pytest.raises(kind, match=message) as caught:
        api.get(CONFIG_MAP, "one")
    assert "sesame" not in str(caught.value)


def test_no_server_at_all(server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
        with pytest.raises(KubeUnreachable, match="connection refused") as caught:
            Api.connect().get(JOB, "toy")
    assert "Is the cluster of the context faulty running?" in caught.value.hint


def test_a_token_that_breaks_http_is_not_shown(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config", "sesame\r\nX: y")))
    with pytest.raises(KubeUnreachable, match="characters that HTTP does not allow") as caught:
        Api.connect().get(JOB, "toy")
    assert "sesame" not in str(caught.value)


def test_answers_that_are_too_large(api: Api, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page gets shorter until it fits. What a caller does not keep takes no memory."""
    monkeypatch.setattr(transport, "LARGEST_ANSWER", 10_000)
    large = json_answer(pods(*(pod("x" * 5000, number) for number in range(3)), version=1))
    server.will("GET", PODS, large, large, json_answer(pods(pod("a", 1), pod("b", 2), version=3)))
    found, _ = api.list(POD, keep=lambda found: found if found["metadata"]["name"] == "a" else None)
    assert [item["metadata"]["name"] for item in found] == ["a"]
    assert [query["limit"] for query in server.asked("GET", PODS)] == ["500", "50", "5"]
    packed = gzip.compress(b" " * 10_000_000)
    server.will(
        "GET", f"{MAPS}/bomb", lambda request: request.send(200, packed, {"Content-Encoding": "gzip"})
    )
    with pytest.raises(KubeTooLarge):
        api.get(CONFIG_MAP, "bomb")


@pytest.mark.parametrize("answer", [{"items": 5}, {"items": [5]}, {"items": {"a": 1}}, {"metadata": 5}])
def test_a_list_that_is_none(api: Api, server: FaultyServer, answer: object) -> None:
    server.will("GET", PODS, json_answer(answer))
    with pytest.raises(KubeError, match="is not an API server"):
        api.list(POD)


def test_an_answer_that_does_not_end(api: Api, server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LONGEST_ANSWER", 0.2)
    server.will("GET", f"{MAPS}/one", drip)
    with pytest.raises(KubeError, match="did not end in"):
        api.get(CONFIG_MAP, "one")


@pytest.mark.soak
def test_a_list_whose_continuation_expires_begins_again(api: Api, server: FaultyServer) -> None:
    first = {**pods(pod("a", 1), version=5), "metadata": {"resourceVersion": "5", "continue": "more"}}
    last = pods(pod("b", 2), version=6)
    expired = status(410, "Expired", "The provided continue parameter is too old")
    server.will("GET", PODS, json_answer(first), expired, json_answer(first), json_answer(last))
    found, version = api.list(POD)
    assert [item["metadata"]["name"] for item in found] == ["a", "b"]
    assert version == "6"


@pytest.fixture
def reflector(api: Api) -> Iterator[Reflector]:
    reflector = Reflector(api, POD)
    yield reflector
    reflector.stop()


def names(reflector: Reflector) -> list[str]:
    return [item["metadata"]["name"] for item in reflector.objects()]


def watched(server: FaultyServer) -> list[str]:
    """The versions from which watches began."""
    return [query["resourceVersion"] for query in server.asked("GET", PODS) if "watch" in query]


def test_a_watch_continues_where_it_broke(reflector: Reflector, server: FaultyServer) -> None:
    added = {"type": "ADDED", "object": pod("b", 7)}
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "9"}}}
    server.will(
        "GET",
        PODS,
        json_answer(pods(pod("a", 1), version=5)),
        changes(added, cut=True),
        changes(bookmark),
        status(503, "ServiceUnavailable"),
        drop,
        changes({"type": "DELETED", "object": pod("a", 11)}, hold=20.0),
    )
    reflector.list()
    reflector.start()
    until(lambda: names(reflector) == ["b"])
    assert watched(server) == ["5", "7", "9", "9", "9"]
    assert reflector.error is None


@pytest.mark.parametrize("gone", [changes({"type": "ERROR", "object": GONE}), status(410, "Expired")])
def test_a_lost_history_is_listed_once(
    reflector: Reflector, server: FaultyServer, gone: Callable[..., None]
) -> None:
    server.will(
        "GET",
        PODS,
        json_answer(pods(pod("a", 1), version=5)),
        gone,
        json_answer(pods(pod("b", 8), version=9)),
        changes(hold=20.0),
    )
    reflector.list()
    reflector.start()
    until(lambda: names(reflector) == ["b"] and reflector.error is None and len(watched(server)) == 2)
    assert watched(server) == ["5", "9"]
    assert len(server.asked("GET", PODS)) == 4


@pytest.mark.soak
def test_a_history_that_is_always_lost_does_not_flood_the_server(
    reflector: Reflector, server: FaultyServer
) -> None:
    server.will("GET", PODS, json_answer(pods(version=5)))
    reflector.list()
    server.answers["GET", PODS].clear()
    server.will("GET", PODS, status(410, "Expired"))
    reflector.start()
    time.sleep(0.8)
    assert 2 <= len(server.asked("GET", PODS)) <= 12


def test_stopping_ends_a_silent_watch(reflector: Reflector, server: FaultyServer) -> None:
    server.will("GET", PODS, json_answer(pods(version=5)), changes(hold=20.0))
    reflector.list()
    others = set(threading.enumerate())
    reflector.start()
    until(lambda: watched(server))
    started = [thread for thread in threading.enumerate() if thread.name == "cloudtrain-watch-pods"]
    time.sleep(0.1)
    reflector.stop()
    assert set(started) - others
    until(lambda: not any(thread.is_alive() for thread in set(started) - others))


def _sent(server: FaultyServer) -> bytes:
    """The object of the last POST, as the server has kept it."""
    return json.dumps(next(body for method, *_, body in server.seen if method == "POST")).encode()


def test_warnings_of_the_server(api: Api, server: FaultyServer) -> None:
    text = r'299 - "would violate PodSecurity \"restricted:latest\": runAsNonRoot != true", 299 - "old"'
    server.will("POST", MAPS, lambda request: request.send(201, json.dumps(MAP).encode(), {"Warning": text}))
    warnings: list[str] = []
    api.create(MAP, dry_run=True, warnings=warnings)
    assert warnings == ['would violate PodSecurity "restricted:latest": runAsNonRoot != true', "old"]
    assert server.asked("POST", MAPS)[0]["dryRun"] == "All"
