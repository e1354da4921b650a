"""The streams of all hosts as one log: from the first line to the last, in time order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import boto3
import pytest
from botocore.config import Config
from scripted_job import ScriptedJob
from service import Lost, SageMakerService, ServiceError
from training_requests import request, training_request

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.log_merge import HELD_EVENTS
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.logs import LogReader, Pace, logs

QUICK = Pace(shortest=0.05, longest=0.1, each_request=0.0, new_streams=0.2, settle=0.5)


@pytest.fixture
def job(platform: SageMakerPlatform, service: SageMakerService) -> ScriptedJob:
    platform.submit(request("a-job"))
    return service.jobs["a-job"]


def follow(platform: SageMakerPlatform) -> Iterator[str]:
    return logs("a-job", platform.aws, follow=True, pace=QUICK)


def test_a_job_that_has_printed_nothing_has_no_lines(platform: SageMakerPlatform, job: ScriptedJob) -> None:
    assert list(platform.logs("a-job")) == []


def test_lines_name_their_host(platform: SageMakerPlatform, job: ScriptedJob) -> None:
    job.log("algo-2", "[rank 3] loss 0.5", at=3)
    job.log("algo-1", "first\nsecond\r\n", at=1)
    job.log("algo-1", " 10%\r 50%\r100%", at=2)
    assert list(platform.logs("a-job")) == [
        "[algo-1] first",
        "[algo-1] second",
        "[algo-1] 100%",
        "[rank 3] loss 0.5",
    ]


@pytest.mark.parametrize("empty_pages", [False, True], ids=["full-pages", "empty-pages"])
def test_many_streams_are_complete_and_in_order(
    platform: SageMakerPlatform, job: ScriptedJob, service: SageMakerService, empty_pages: bool
) -> None:
    hosts, lines = 200, 300
    service.empty_pages = empty_pages
    for number in range(lines):
        for host in range(hosts):
            job.log(f"algo-{host + 1}", f"line {number}", at=1_700_000_000 + number + host / hosts)
    job.complete()
    expected = [f"[algo-{host + 1}] line {number}" for number in range(lines) for host in range(hosts)]
    assert list(follow(platform)) == expected
    limits = [given["limit"] for operation, given in service.calls if operation == "GetLogEvents"]
    assert max(limits) * hosts <= HELD_EVENTS


def test_lines_are_followed_from_the_first_to_those_after_the_end(
    platform: SageMakerPlatform, job: ScriptedJob
) -> None:
    job.log("algo-1", "one")
    lines = logs("a-job", platform.aws, follow=True, pace=replace(QUICK, settle=3.0))
    assert next(lines) == "[algo-1] one"
    job.enter("Training")
    job.log("algo-2", "another host")
    assert next(lines) == "[algo-2] another host"
    job.enter("Interrupted")
    job.log("algo-1", "restarted", stream=2)
    assert next(lines) == "[algo-1] restarted"
    job.complete()
    late = threading.Timer(0.3, job.log, ["algo-1", "late"])
    late.start()
    assert list(lines) == ["[algo-1] late"]
    late.join()


def test_a_stream_that_grows_all_the_time_does_not_hold_up_the_others(
    platform: SageMakerPlatform, job: ScriptedJob
) -> None:
    ended = threading.Event()

    def print_on() -> None:
        while not ended.is_set():
            job.log("algo-1", *["busy"] * 10)
            time.sleep(0.001)

    writer = threading.Thread(target=print_on)
    writer.start()
    try:
        lines = follow(platform)
        next(lines)
        job.log("algo-2", "me too")
        assert "[algo-2] me too" in lines
    finally:
        ended.set()
        writer.join()


TROUBLE = [
    ServiceError("ThrottlingException", "Rate exceeded"),
    ServiceError("ServiceUnavailableException", "", status=503),
    Lost(),
]


@pytest.mark.parametrize("operation", ["DescribeLogStreams", "GetLogEvents"])
@pytest.mark.parametrize("trouble", TROUBLE, ids=["throttled", "unavailable", "connection-lost"])
def test_trouble_loses_nothing(
    job: ScriptedJob, service: SageMakerService, trouble: Exception, operation: str
) -> None:
    job.log("algo-1", "one", at=1)
    service.fail(operation, trouble)
    reader = LogReader(
        "a-job", boto3.Session().client("logs", config=Config(retries={"total_max_attempts": 1}))
    )
    with ThreadPoolExecutor(1) as pool:
        assert list(reader.round(pool)) == []
        assert reader.trouble is not None
        assert list(reader.round(pool)) == ["[algo-1] one"]
        assert reader.trouble is None


def test_trouble_is_waited_out_while_following(
    platform: SageMakerPlatform, job: ScriptedJob, service: SageMakerService
) -> None:
    platform.aws.use_client("logs", platform.aws.client("logs", attempts=1))
    job.log("algo-1", "one", at=1)
    service.fail("GetLogEvents", *TROUBLE)
    lines = follow(platform)
    assert next(lines) == "[algo-1] one"
    service.fail("DescribeTrainingJob", *TROUBLE)
    job.log("algo-1", "two", at=2)
    job.complete()
    assert list(lines) == ["[algo-1] two"]


def test_a_permanent_error_is_raised(
    platform: SageMakerPlatform, job: ScriptedJob, service: SageMakerService
) -> None:
    platform.aws.use_client("logs", platform.aws.client("logs", attempts=1))
    job.log("algo-1", "one", at=1)
    service.fail("GetLogEvents", *[TROUBLE[0]] * 100)
    with pytest.raises(PlatformError, match="Rate exceeded"):
        list(logs("a-job", platform.aws, follow=True, pace=replace(QUICK, in_trouble=0.1, patience=0.3)))


def test_denied_access_to_logs_is_raised_immediately(
    platform: SageMakerPlatform, job: ScriptedJob, service: SageMakerService
) -> None:
    service.fail(
        "DescribeLogStreams", ServiceError("AccessDeniedException", "not authorized to perform: logs:x")
    )
    with pytest.raises(PlatformError, match="logs:x") as caught:
        list(platform.logs("a-job"))
    assert "permission" in caught.value.hint


def test_a_token_that_has_expired_is_replaced(job: ScriptedJob, service: SageMakerService) -> None:
    reader = LogReader("a-job", boto3.Session().client("logs"))
    job.log("algo-1", "one", at=1_700_000_000)
    with ThreadPoolExecutor(1) as pool:
        assert list(reader.round(pool)) == ["[algo-1] one"]
        job.log("algo-1", "two", at=1_700_000_001)
        service.fail("GetLogEvents", ServiceError("InvalidParameterException", "The token has expired"))
        assert list(reader.round(pool)) == ["[algo-1] two"]
    assert service.calls[-2][1]["startTime"] == 1_700_000_000_001


def test_moto_gives_the_lines_too(moto: str) -> None:
    boto3.Session().client("sagemaker").create_training_job(**training_request("a-job"))
    client = boto3.Session().client("logs")
    where = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": "a-job/algo-1-1700000001"}
    client.create_log_group(logGroupName=where["logGroupName"])
    client.create_log_stream(**where)
    stamp = int(1000 * time.time())
    events = [{"timestamp": stamp + number, "message": f"line {number}"} for number in range(3)]
    client.put_log_events(**where, logEvents=events)
    assert list(SageMakerPlatform().logs("a-job")) == [f"[algo-1] line {number}" for number in range(3)]
