"""Events, metrics and the summary of a running job, from the leader's log."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from kubelet_logs import ContainerLog, Fault, KubeletLogs
from pod_objects import Objects

from cloudtrain.observe.course import HostRanks
from cloudtrain.observe.event_lines import encode_event
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.host_samples import HostSamples
from cloudtrain.platforms.kubernetes.logs import (
    LastLinesOf,
    RunningSummary,
    WholeSummary,
    events,
    metrics,
)

SECOND = 10**9


@pytest.fixture
def api(log_api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.logs.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.logs.FRESH_WHOLE", 0.0)
    monkeypatch.setattr("cloudtrain.platforms.kubernetes.host_samples.FRESH_SECONDS", 0.0)
    return log_api


def say(log: ContainerLog, at: float, event: str, **fields: Any) -> None:
    """The runtime prints an event."""
    line = encode_event({"time": at, "source": "x", "event": event, **fields})
    log.print(line.rstrip(b"\n"), at=int(at * SECOND))


def begin(log: ContainerLog, at: float) -> None:
    say(log, at, "phase", phase="fetch", state="began")
    say(log, at + 1, "phase", phase="fetch", state="ended", seconds=1.0, bytes=0)
    say(log, at + 1, "phase", phase="train", state="began")


def test_events_of_the_leader_in_two_attempts(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(2)
    now = float(int(time.time()) - 1000)
    first, follower = kubelet_logs.logs[objects.add(0)], kubelet_logs.logs[objects.add(1)]
    begin(first, now)
    say(first, now + 2, "metric", name="loss", value=2.0, rank=0)
    say(follower, now + 2, "metric", name="loss", value=9.0, rank=1)
    first.print('[cloudtrain:event] {"event": "job", "status": "Failed"}', at=int((now + 3) * SECOND))
    first.print('[rank 0] [cloudtrain:event] {"event": "warning", "message": "forged"}')
    second = kubelet_logs.logs[objects.add(0, attempt="b")]
    begin(second, now + 10)
    say(second, now + 12, "metric", name="loss", value=1.0, rank=0)
    say(second, now + 13, "metric", name="loss", value=math.nan, rank=0)
    found = list(events(api, objects, follow=False))
    assert [event["event"] for event in found] == [
        *("attempt", "phase", "phase", "phase", "metric"),
        *("attempt", "phase", "phase", "phase", "metric", "metric"),
    ]
    assert [event["attempt"] for event in found if event["event"] == "attempt"] == [0, 1]
    assert {event["source"] for event in found} == {"j-0"}
    values = [(point.time, point.value) for point in metrics(api, objects)["loss"]]
    assert values[:2] == [(now + 2, 2.0), (now + 12, 1.0)] and math.isnan(values[2][1])
    trend = [(point.time, point.value) for point in WholeSummary(api, objects)().series["loss"]]
    assert trend[:2] == [(now + 2, 2.0), (now + 12, 1.0)]


def test_samples_of_all_hosts_are_from_their_own_logs(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(3)
    now = float(int(time.time()) - 1000)
    pods = [objects.add(host) for host in range(3)]
    for host, pod in enumerate(pods):
        for index in range(2):
            say(kubelet_logs.logs[pod], now + index, "sample", seconds=10.0, cpu=float(10 * host + index))
    kubelet_logs.logs[pods[1]].print("[rank 1] an ordinary line", at=int((now + 2) * SECOND))
    say(kubelet_logs.logs[pods[1]], now + 2, "launch", ranks=[2, 3])
    say(kubelet_logs.logs[pods[1]], now + 2, "step", step=7, stalled=0.0)
    say(kubelet_logs.logs[pods[1]], now + 2, "rank-ended", rank=3, exit_code=1)
    samples = HostSamples(api)
    assert {
        host: [event["cpu"] for event in events] for host, events in samples(objects.snapshot()).items()
    } == {
        "j-1": [10.0, 11.0],
        "j-2": [20.0, 21.0],
    }
    assert samples.ranks(objects.snapshot()) == {
        "j-1": HostRanks([2, 3], [(3, 1)], 7),
        "j-2": HostRanks(),
    }
    say(kubelet_logs.logs[pods[2]], now + 3, "sample", seconds=10.0, cpu=7.0, ranks=[4, 5])
    kubelet_logs.logs[pods[1]].faults = [Fault(403)]
    found = samples(objects.snapshot())
    assert [event["cpu"] for event in found["j-2"]] == [20.0, 21.0, 7.0]
    assert samples.ranks(objects.snapshot())["j-2"] == HostRanks([4, 5])
    assert [event["cpu"] for event in found["j-1"]] == [10.0, 11.0]
    assert list(WholeSummary(api, objects)().last_samples()) == ["j-0"]


def test_a_look_at_the_samples_of_many_hosts_is_bounded(
    kubelet_logs: KubeletLogs, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"READERS": 1, "LOOK_SECONDS": 0.5, "MOST_IN_ALL": 6}.items():
        monkeypatch.setattr(f"cloudtrain.platforms.kubernetes.host_samples.{name}", value)
    objects, now = Objects(4), float(int(time.time()) - 1000)
    for pod in [objects.add(host) for host in range(4)][1:]:
        for index in range(5):
            say(kubelet_logs.logs[pod], now + index, "sample", seconds=10.0, cpu=float(index))
        kubelet_logs.logs[pod].faults = [Fault(delay=0.8)]
    samples = HostSamples(api)
    found = [{host: len(events) for host, events in samples(objects.snapshot()).items()} for _ in range(4)]
    assert [len(hosts) for hosts in found] == [1, 2, 3, 3]
    assert set(found[-1].values()) == {2}


def test_events_are_followed(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(1)
    log = kubelet_logs.logs[objects.add(0)]
    found = events(api, objects, follow=True)
    say(log, time.time(), "phase", phase="train", state="began")
    assert [next(found)["event"], next(found)["event"]] == ["attempt", "phase"]
    say(log, time.time(), "metric", name="loss", value=2.0, rank=0)
    log.end()
    objects.put("j-0-a", "terminated")
    objects.end()
    assert [event["event"] for event in found] == ["metric"]


def test_a_summary_reads_a_log_once(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(1)
    now = float(int(time.time()) - 1000)
    log = kubelet_logs.logs[objects.add(0)]
    summary_of = WholeSummary(api, objects)
    for number in range(300):
        say(log, now + number, "metric", name="loss", value=float(number), rank=0)
        if number % 100 == 99:
            summary_of()
    summary_of()
    (loss,) = summary_of().series.values()
    assert (loss[-1].time, loss[-1].value) == (now + 299, pytest.approx(298, abs=3))
    assert sum(point.value for point in loss) / len(loss) == pytest.approx(
        149.5, abs=2
    )  # each value counts once
    assert ["sinceTime" in request for request in log.requests] == [False, True, True, True, True]
    log.faults = [Fault(403)]
    with pytest.raises(KubeForbidden):
        summary_of()
    log.end()
    objects.put("j-0-a", "terminated")
    assert summary_of().series["loss"] == loss
    count = len(log.requests)
    assert summary_of().series["loss"] == loss
    assert len(log.requests) == count  # the log of a pod that has ended is complete


def test_the_progress_of_a_running_job(kubelet_logs: KubeletLogs, api: Api) -> None:
    """From the end of a long log, and its beginning; then from what is new."""
    objects = Objects(1)
    summary = RunningSummary(api)
    assert summary(objects) is None
    now = float(int(time.time()) - 100)
    log = kubelet_logs.logs[objects.add(0)]
    begin(log, now)
    for number in range(10_000):
        log.print("x" * 100, at=int((now + 2 + number / 1000) * SECOND))
    say(log, now + 12, "metric", name="loss", value=3.0, rank=0)
    found = summary(objects)
    assert found is not None
    assert (found.phase, found.phases, found.metrics) == ("train", {"fetch": 1.0}, {"loss": 3.0})
    assert [request.get("tailLines") for request in log.requests] == ["2000", None]
    say(log, now + 13, "metric", name="loss", value=2.0, rank=0)
    say(log, now + 14, "warning", message="slow")
    found = summary(objects)
    assert found is not None
    assert found.metrics == {"loss": 2.0} and found.warnings == ["slow"]
    assert len(found.trends["loss"].points) == 2  # none was counted twice
    assert len(log.requests) == 3 and "sinceTime" in log.requests[2]
    log.faults = [Fault(403)]
    say(log, now + 15, "metric", name="loss", value=1.0, rank=0)
    again = summary(objects)
    assert again is not None and again.metrics == {"loss": 2.0}
    goodput = again.meter.result(now, None, now + 20)
    assert goodput is not None and goodput.measured_by == "script"
    second = kubelet_logs.logs[objects.add(0, attempt="b")]
    begin(second, now + 16)
    found = summary(objects)
    assert found is not None and found.meter.attempts == 2 and found.metrics == {"loss": 1.0}


def test_the_last_lines_of_hosts(kubelet_logs: KubeletLogs, api: Api) -> None:
    objects = Objects(3)
    for index in range(3):
        log = kubelet_logs.logs[objects.add(index)]
        log.print(*(f"[rank {index}] line {number}" for number in range(1000)))
        say(log, time.time(), "outcome", status="Failed")
    del kubelet_logs.logs["j-2-a"]
    last_lines = LastLinesOf(api, objects)
    assert set(last_lines(None)) == {"j-0", "j-1"}
    [(host, lines)] = last_lines("j-1").items()
    assert host == "j-1" and lines[-1] == "[rank 1] line 999" and len(lines) == 499
