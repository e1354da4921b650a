"""The notice of a spot interruption, from a simulated metadata service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from metadata_service import metadata_service
from waiting import wait_for_end

from cloudtrain import Job, JobStatus
from cloudtrain.contract import Notice
from cloudtrain.environment.spot import spot_notice

Submit = Callable[..., Job]

ACTION = {"action": "terminate", "time": "2026-11-21T17:02:00Z"}


def test_spot_notice_appears_when_the_metadata_service_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # the service is never behind a proxy
    with metadata_service() as service:
        assert spot_notice(service.endpoint) is None
        service.action = ACTION
        assert spot_notice(service.endpoint) == Notice(1795280520.0, "EC2 spot interruption: terminate")


@pytest.mark.parametrize("answer", ["", "<html>", "[]", '{"action": "stop"}', '{"action": 1, "time": 2}'])
def test_an_invalid_answer(answer: str) -> None:
    with metadata_service() as service:
        service.action = answer
        if answer:
            with pytest.raises(OSError, match="not a valid spot notice"):
                spot_notice(service.endpoint)
        else:
            assert spot_notice(service.endpoint) is None


def test_no_service() -> None:
    with metadata_service() as service:
        endpoint = service.endpoint
    with pytest.raises(OSError):
        spot_notice(endpoint)


@pytest.mark.parametrize("asked", ["1", ""])
def test_a_process_outside_a_job_polls_if_enabled(asked: str) -> None:
    script = """
import time
from cloudtrain import environment
from cloudtrain.environment import spot

deadline = time.monotonic() + (20 if spot.os.environ.get("CLOUDTRAIN_SPOT_NOTICE") else 0.5)
while environment.preemption() is None and time.monotonic() < deadline:
    time.sleep(0.02)
print(environment.preemption() and environment.preemption().reason)
"""
    with metadata_service() as service:
        service.action = ACTION
        variables = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint, "CLOUDTRAIN_SPOT_NOTICE": asked}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout == ("EC2 spot interruption: terminate\n" if asked else "None\n"), done.stderr


WAITS = """
    import os, time
    from cloudtrain import environment

    if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
        deadline = time.monotonic() + 60
        while environment.preemption() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        notice = environment.preemption()
        print("notice:", notice.reason, int(notice.deadline), flush=True)
        if environment.rank() == 0:
            time.sleep(1)  # until the rank of the other host has been notified too
        environment.exit_if_preempted()
        time.sleep(60)
    print("again", flush=True)
"""


def test_a_notice_on_one_host_reaches_the_ranks_of_all(submit: Submit) -> None:
    with metadata_service() as service:
        service.action = ACTION
        variables = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint, "CLOUDTRAIN_SPOT_NOTICE": "1"}
        job = submit(WAITS, environment=variables, instance_count=2)
        logs = wait_for_end(job)
    assert (job.status, job.describe().attempt) == (JobStatus.COMPLETED, 1), logs
    for rank in (0, 1):
        assert f"[rank {rank}] notice: EC2 spot interruption: terminate 1795280520" in logs
        assert f"[rank {rank}] again" in logs
