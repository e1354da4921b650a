"""The logs of a job's pods, from a server that does to connections what networks and kubelets do."""

from __future__ import annotations

import random
import threading
import time

import pytest
from kubelet_logs import Fault, KubeletLogs
from pod_objects import Objects

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.logs import logs
from cloudtrain.platforms.kubernetes.pod_log import HELD_BYTES

SECOND = 10**9


@pytest.fixture
def api(log_api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.pod_log.FIRST_PAUSE", 0.02)
    return log_api


class Reader:
    """Follows the logs of a job in a thread."""

    def __init__(self, api: Api, objects: Objects) -> None:
        self.lines: list[str] = []
        self.error: Exception | None = None
        self._logs = logs(api, objects, follow=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for line in self._logs:
                self.lines.append(line)
        except Exception as error:
            self.error = error

    def until(self, *lines: str, seconds: float = 60) -> None:
        """Wait for lines."""
        deadline = time.monotonic() + seconds
        while not set(lines) <= set(self.lines):
            assert time.monotonic() < deadline, f"{set(lines) - set(self.lines)} missing in {self.lines[-9:]}"
            time.sleep(0.01)

    def finish(self, seconds: float = 60) -> list[str]:
        """All lines, once the job has ended."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), self.lines[-9:]
        return self.lines


def test_the_log_so_far(kubelet_logs: KubeletLogs, api: Api) -> None:
    """In the order of the kubelets' times; bytes that are not UTF-8, progress bars, events and odd lines."""
    objects = Objects(3)
    first, second = kubelet_logs.logs[objects.add(0)], kubelet_logs.logs[objects.add(1)]
    objects.add(2, state="waiting")
    now = 1_700_000_000 * SECOND
    first.print("[rank 0] one", at=now)
    first.print("[cloudtrain] three", at=now + 300)
    first.print(
        '[cloudtrain:event] {"event": "metric", "name": "loss", "value": 1.0, "time": 1.0}', at=now + 310
    )
    first.print("[cloudtrain:event] not an event", at=now + 320)
    second.print("two", "", at=now + 200)
    second.print(b"1%\r2%\r3%\r", at=now + 400)
    second.print(b"\xff\xfe caf\xc3\xa9", at=now + 2 * SECOND)
    second.print("no end", at=now + 3 * SECOND, end=b"")
    assert list(logs(api, objects, follow=False)) == [
        "[rank 0] one",
        "[j-1] two",
        "[j-1] ",
        "[j-0] [cloudtrain] three",
        "[j-0] [cloudtrain:event] not an event",
        "[j-1] 3%",
        "[j-1] \\xff\\xfe café",
        "[j-1] no end",
    ]
    assert first.requests == [{"container": "train", "timestamps": "true"}]


def test_a_job_is_followed_from_before_its_first_pod_to_its_end(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(2)
    reader = Reader(api, objects)
    leader = objects.add(0, state="waiting")
    other = objects.add(1, state="waiting")
    time.sleep(0.2)
    assert not kubelet_logs.logs  # not even asked for
    kubelet_logs.logs[leader].print("zero")
    objects.put(leader, "running")
    reader.until("[j-0] zero")
    kubelet_logs.logs[other].print("one")
    objects.put(other, "running")
    kubelet_logs.logs[leader].print("two")
    reader.until("[j-1] one", "[j-0] two")
    for pod in (leader, other):
        kubelet_logs.logs[pod].print("last")
        kubelet_logs.logs[pod].end()
        objects.put(pod, "terminated")
    objects.end()
    assert sorted(reader.finish()) == ["[j-0] last", "[j-0] two", "[j-0] zero", "[j-1] last", "[j-1] one"]
    assert reader.error is None


def test_a_stopped_trainjob_is_only_suspended(kubelet_logs: KubeletLogs, api: Api) -> None:
    """Following it ends all the same."""
    objects = Objects(1)
    log = kubelet_logs.logs[objects.add(0)]
    log.print("hello")
    reader = Reader(api, objects)
    reader.until("[j-0] hello")
    assert objects.owner
    stopped = {**objects.owner["metadata"], "annotations": {"cloudtrain/stopped": "2026-11-23T00:01:00Z"}}
    objects.owner = {**objects.owner, "kind": "TrainJob", "metadata": stopped, "spec": {"suspend": True}}
    log.end()
    objects.remove("j-0-a")
    assert reader.finish() == ["[j-0] hello"]


def test_pods_that_are_replaced_after_a_restart(kubelet_logs: KubeletLogs, api: Api) -> None:
    """A pod that is deleted is read to its end; the log of the one that replaces it follows."""
    objects = Objects(1)
    reader = Reader(api, objects)
    old = kubelet_logs.logs[objects.add(0)]
    old.print("first attempt")
    reader.until("[j-0] first attempt")
    objects.remove("j-0-a")
    old.print("the last line")  # within its grace
    new = kubelet_logs.logs[objects.add(0, attempt="b")]
    new.print("second attempt")
    reader.until("[j-0] the last line", "[j-0] second attempt")
    old.end()
    new.end()
    objects.put("j-0-b", "terminated")
    objects.end()
    assert reader.finish() == ["[j-0] first attempt", "[j-0] the last line", "[j-0] second attempt"]


FAULTS = {
    "throttled": [Fault(429), Fault(429)],
    "server errors": [Fault(500), Fault(503)],
    "kubelet starting": [Fault(404), Fault(400), Fault(502)],
    "cut immediately": [Fault(after=0)] * 3,
    "cut in a line": [Fault(after=n) for n in (7, 31, 100, 1000)],
    "ended early, as if complete": [Fault(after=n, is_clean=True) for n in (7, 45, 333, 1000)],
    "the kubelet complains": [Fault(says=b"failed to create fsnotify watcher: too many open files")] * 2,
}


IN_CI = ("cut in a line", "ended early, as if complete", "the kubelet complains")
KINDS = [pytest.param(kind, marks=[pytest.mark.soak] * (kind not in IN_CI)) for kind in FAULTS]


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_is_lost_or_printed_twice(kubelet_logs: KubeletLogs, api: Api, kind: str) -> None:
    """Many lines share a second, and some of them a nanosecond and their text."""
    objects = Objects(1)
    name = objects.add(0)
    log = kubelet_logs.logs[name]
    log.faults = list(FAULTS[kind])
    start = time.time_ns()
    wanted = []
    for number in range(60):
        text = "same" if number % 10 < 3 else f"line {number} " + "x" * (number % 7)
        log.print(text, at=start + number // 10 * (SECOND // 7))
        wanted.append(f"[j-0] {text}")
    reader = Reader(api, objects)
    reader.until("[j-0] line 59 xxx")
    log.faults = list(FAULTS[kind])
    kubelet_logs.stop()  # a restart of the API server
    kubelet_logs.restart()
    for number in range(60, 90):
        log.print(f"line {number}", at=start + SECOND + number)
        wanted.append(f"[j-0] line {number}")
    log.end()
    objects.put(name, "terminated")
    objects.end()
    said = [line for line in reader.finish(60) if "(kubelet)" not in line]
    assert said == wanted


def test_a_rotated_log_continues(kubelet_logs: KubeletLogs, api: Api) -> None:
    """The lines by which the end is recognised are gone: all others are new."""
    objects = Objects(1)
    name = objects.add(0)
    log = kubelet_logs.logs[name]
    at = time.time_ns()
    log.print("one", "two", at=at)
    reader = Reader(api, objects)
    reader.until("[j-0] two")
    kubelet_logs.stop()
    log.rotate()
    log.print("three", at=at + 5)
    kubelet_logs.restart()
    reader.until("[j-0] three")
    log.end()
    objects.put(name, "terminated")
    objects.end()
    assert reader.finish() == ["[j-0] one", "[j-0] two", "[j-0] three"]


def test_faults_at_random(kubelet_logs: KubeletLogs, api: Api) -> None:
    choose = random.Random(7)
    objects = Objects(8)
    names = [objects.add(index) for index in range(8)]
    reader = Reader(api, objects)

    def fault() -> Fault:
        after, status = choose.randrange(4000), choose.choice([429, 500, 502, 503, 504, 404])
        return choose.choice([Fault(status), Fault(after=after), Fault(after=after, is_clean=True), Fault()])

    for number in range(200):
        name = choose.choice(names)
        kubelet_logs.logs[name].print(f"line {number} {'x' * choose.randrange(200)}")
        if number % 5 == 0:
            kubelet_logs.logs[choose.choice(names)].faults.append(fault())
        time.sleep(0.003)
    for name in names:
        kubelet_logs.logs[name].faults.clear()
        kubelet_logs.logs[name].end()
        objects.put(name, "terminated")
    objects.end()
    found = [line.split()[2] for line in reader.finish(60)]
    assert sorted(map(int, found)) == list(range(200))
    for index, name in enumerate(names):
        mine = [line for line in reader.lines if line.startswith(f"[j-{index}]")]
        assert mine == [f"[j-{index}] {text.decode()[:-1]}" for _, text in kubelet_logs.logs[name].lines]


def test_a_lost_node_does_not_delay_the_others(
    kubelet_logs: KubeletLogs, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.logs.SETTLE_SECONDS", 0.5)
    objects = Objects(2)
    lost, other = objects.add(0), objects.add(1)
    kubelet_logs.logs[lost].print("from the lost node")
    reader = Reader(api, objects)
    reader.until("[j-0] from the lost node")
    kubelet_logs.logs[lost].faults = [Fault(502)] * 10_000
    kubelet_logs.stop()
    kubelet_logs.restart()
    began = time.monotonic()
    for number in range(5):
        kubelet_logs.logs[other].print(f"line {number}")
        reader.until(f"[j-1] line {number}")
    assert time.monotonic() - began < 60
    kubelet_logs.logs[other].end()
    objects.put(other, "terminated")
    objects.end()
    assert len(reader.finish()) == 6  # though the pod is still reported as running


def test_a_stream_that_outlives_its_pod_does_not_delay_the_end(
    kubelet_logs: KubeletLogs, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node is lost, and its pod was deleted: no one ends the connection."""
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.pod_log.LAST_SECONDS", 0.2)
    objects = Objects(1)
    lost = objects.add(0)
    kubelet_logs.logs[lost].print("one")
    reader = Reader(api, objects)
    reader.until("[j-0] one")
    objects.remove(lost)
    objects.end()
    assert reader.finish() == ["[j-0] one"]


def test_the_launcher_of_an_mpijob_has_the_lines_of_its_workers(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(2)
    assert objects.owner
    objects.owner = {**objects.owner, "kind": "MPIJob"}
    launcher, worker = kubelet_logs.logs[objects.add(0)], kubelet_logs.logs[objects.add(1)]
    launcher.print("[rank 0] hello")
    worker.print("[rank 0] hello")
    assert list(logs(api, objects, follow=False)) == ["[rank 0] hello"]
    launcher.end()
    objects.put("j-0-a", "terminated")
    objects.put("j-1-a", "terminated")
    objects.end()
    assert list(logs(api, objects, follow=True)) == ["[rank 0] hello"]


def test_a_refusal_is_an_error(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(1)
    log = kubelet_logs.logs[objects.add(0)]
    log.faults = [Fault(403), Fault(403)]
    with pytest.raises(PlatformError, match="may not get pods/log"):
        list(logs(api, objects, follow=False))
    with pytest.raises(PlatformError, match="may not get pods/log"):
        list(logs(api, objects, follow=True))


def test_a_late_refusal_of_the_log_of_a_job_that_has_ended_is_an_error(
    kubelet_logs: KubeletLogs, api: Api
) -> None:
    objects = Objects(1)
    kubelet_logs.logs[objects.add(0, state="terminated")].faults = [Fault(403, delay=1.0)]
    objects.end()
    with pytest.raises(PlatformError, match="may not get pods/log"):
        list(logs(api, objects, follow=True))


def test_lines_before_the_first_complaint_of_a_kubelet_are_read(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(1)
    log = kubelet_logs.logs[objects.add(0)]
    log.print("an hour ago", at=time.time_ns() - 3600 * SECOND)
    log.faults = [Fault(says=b"unable to retrieve container logs")]
    Reader(api, objects).until("[j-0] an hour ago")


def test_a_refusal_after_a_restart_of_the_api_server_passes(kubelet_logs: KubeletLogs, api: Api) -> None:
    """It does not know all roles yet."""
    objects = Objects(1)
    log = kubelet_logs.logs[objects.add(0)]
    log.print("one")
    reader = Reader(api, objects)
    reader.until("[j-0] one")
    log.faults = [Fault(403), Fault(401)]
    kubelet_logs.stop()
    log.print("two")
    kubelet_logs.restart()
    reader.until("[j-0] two")


def test_leaving_ends_all_connections(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(30)
    names = [objects.add(index, attempt="left") for index in range(30)]
    for name in names:
        kubelet_logs.logs[name].print("hello")
    before = set(threading.enumerate())
    lines = logs(api, objects, follow=True)
    assert sorted(next(lines) for _ in range(30))[0] == "[j-0] hello"
    began = time.monotonic()
    lines.close()  # as Ctrl-C does
    assert time.monotonic() - began < 30
    deadline = began + 60
    while any(thread.name.startswith("log-") for thread in {*threading.enumerate()} - before):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
    assert threading.active_count() <= len(before) + 31  # the server's own threads notice later


def test_a_slow_reader_holds_back_what_is_printed(
    kubelet_logs: KubeletLogs, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded, and the order of the whole log stays right."""
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.pod_log.HELD_BYTES", 1 << 16)
    assert HELD_BYTES == 1 << 17
    objects = Objects(3)
    now = time.time_ns() - 3600 * SECOND
    for index in range(3):
        log = kubelet_logs.logs[objects.add(index)]
        for number in range(2000):
            log.print(f"{3 * number + index} {'x' * 500}", at=now + (3 * number + index) * 10**6)
        log.end()
        objects.put(f"j-{index}-a", "terminated")
    objects.end()
    found = []
    for line in logs(api, objects, follow=True):
        found.append(int(line.split()[1]))
        if len(found) % 1000 == 0:
            time.sleep(0.1)
    assert found == list(range(6000))


def test_a_line_that_never_ends_is_shown_in_parts(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(1)
    log = kubelet_logs.logs[objects.add(0)]
    log.print(b"x" * 2_500_000, "next", at=time.time_ns())
    lines = list(logs(api, objects, follow=False))
    assert "".join(line.removeprefix("[j-0] ") for line in lines) == "x" * 2_500_000 + "next"
    assert max(map(len, lines)) < 2_100_000
    assert lines[-1] == "[j-0] next"
