"""CloudWatch allows 25 GetLogEvents a second: any number of busy streams is followed below that rate."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from busy_logs import follow_busy
from scripted_job import ScriptedJob
from service import SageMakerService
from training_requests import request

from cloudtrain.platforms.common.log_merge import AT_ONCE, BUSY_SECONDS, Turns
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.logs import RequestBudget, last_lines

MOST = 25


@pytest.fixture
def job(platform: SageMakerPlatform, service: SageMakerService) -> ScriptedJob:
    platform.submit(request("a-job"))
    return service.jobs["a-job"]


@pytest.mark.parametrize(
    ("hosts", "seconds"), [(60, 4), pytest.param(500, 90, marks=pytest.mark.soak)], ids=["60", "500"]
)
def test_busy_streams_are_followed_below_the_limit_and_in_order(
    hosts: int, seconds: float, platform: SageMakerPlatform, service: SageMakerService, job: ScriptedJob
) -> None:
    followed = follow_busy(platform, service, job, hosts, seconds)
    followed.check_complete(hosts)
    assert followed.steps_back == 0
    assert followed.most_in_a_second < MOST
    asked = [given["logStreamName"] for operation, given in service.calls if operation == "GetLogEvents"]
    counts = [asked.count(name) for name in set(asked)]
    assert max(counts) - min(counts) <= 2, "each stream has the same share"


def test_the_last_lines_of_many_hosts_stay_below_it_too(
    platform: SageMakerPlatform, service: SageMakerService, job: ScriptedJob
) -> None:
    for host in range(30):
        job.log(f"algo-{host + 1}", "the end")
    assert last_lines("a-job", platform.aws) == {f"algo-{host + 1}": ["the end"] for host in range(30)}
    at = sorted(
        at
        for (operation, _), at in zip(service.calls, service.called_at, strict=True)
        if operation == "GetLogEvents"
    )
    assert len(at) == 30
    assert at[MOST - 1] - at[0] >= 1


def test_requests_of_all_threads_share_one_budget() -> None:
    budget, began = RequestBudget(0.01), time.monotonic()
    starts: list[float] = []
    lock = threading.Lock()

    def ask(_: int) -> None:
        budget.wait()
        with lock:
            starts.append(time.monotonic() - began)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(ask, range(50)))
    assert all(at >= 0.01 * index - 1e-3 for index, at in enumerate(sorted(starts)))


def test_a_process_that_was_paused_sends_no_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, awake, sleep = RequestBudget(0.01), time.monotonic() + 0.3, time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: sleep(max(seconds, awake - time.monotonic())))
    starts: list[float] = []

    def ask(_: int) -> None:
        budget.wait()
        starts.append(time.monotonic())

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(ask, range(10)))
    starts.sort()
    assert starts[-1] - starts[1] >= 0.01 * 8 - 1e-3


def test_quiet_streams_take_turns_and_busy_ones_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    streams = [SimpleNamespace(name=str(number)) for number in range(500)]
    turns: Turns = Turns()
    assert turns.due(streams) == streams, "all are new"
    for stream in streams:
        turns.was_read(stream, is_busy=stream.name == "7")
    rounds: list[list[str]] = []
    for _ in range(13):
        now += 2
        due = turns.due(streams)
        rounds.append([stream.name for stream in due])
        for stream in due:
            turns.was_read(stream, is_busy=stream.name == "7")
    assert all("7" in names and len(names) == AT_ONCE for names in rounds)
    assert {name for names in rounds for name in names} == {stream.name for stream in streams}
    now += BUSY_SECONDS + 1
    assert len(turns.due(streams)) == AT_ONCE, "the busy one is quiet now"
    for stream in streams[:200]:
        turns.was_read(stream, is_busy=True)
    assert len(turns.due(streams)) == 250, "a fourth more"
