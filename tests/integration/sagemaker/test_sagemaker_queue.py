"""Jobs that wait in a queue of AWS Batch: from their submission to the end of their last training job."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_queue import ScriptedQueues, ServiceJob
from service import Lost, SageMakerService, ServiceError
from training_requests import request, training_request

from cloudtrain import Estimator
from cloudtrain.aws.aws import Aws
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import JobExists, JobNotFound, PlatformError, TrainingFailed
from cloudtrain.job import Job
from cloudtrain.platforms import CheckStatus, Request
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.doctor import checks
from cloudtrain.platforms.sagemaker.logs import Pace
from cloudtrain.platforms.sagemaker.queue.describe import logs_queued
from cloudtrain.platforms.sagemaker.queue.service_job import describe_service_job
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import open_store


@pytest.fixture
def queues(service: SageMakerService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedQueues:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    found = ScriptedQueues(service).install()
    found.add("gpus")
    return found


def queued(name: str, *, secrets: dict[str, str] | None = None, **changes: Any) -> Request:
    body = {
        "jobName": name,
        "jobQueue": "gpus",
        "serviceJobType": "SAGEMAKER_TRAINING",
        "retryStrategy": {"attempts": 2},
        "serviceRequestPayload": training_request(name),
        **changes,
    }
    return Request("sagemaker", name, body, secrets or {})


@pytest.fixture
def job(platform: SageMakerPlatform, queues: ScriptedQueues) -> ServiceJob:
    platform.submit(queued("a-job"))
    return queues.jobs[0]


def test_a_job_from_the_queue_to_its_end(platform: SageMakerPlatform, job: ServiceJob) -> None:
    assert json.loads(job.request["serviceRequestPayload"]) == training_request("a-job")
    seen = []

    def look() -> None:
        found = platform.describe("a-job")
        seen.append((found.status, found.phase, found.attempt))

    look()
    job.wait()
    look()
    job.start("SCHEDULED")
    look()
    job.status = "RUNNING"
    job.training_job.enter("Training")
    look()
    job.training_job.complete(BillableTimeInSeconds=40)
    job.end("SUCCEEDED")
    look()
    assert seen == [
        (JobStatus.PENDING, "SUBMITTED", 0),
        (JobStatus.PENDING, "RUNNABLE", 0),
        (JobStatus.PENDING, "Starting", 0),
        (JobStatus.RUNNING, "Training", 0),
        (JobStatus.COMPLETED, None, 0),
    ]
    done = Job.attach("a-job", "sagemaker").wait(timeout=120).describe()
    assert done.name == "a-job"
    assert done.model_data == f"s3://bucket/out/{job.training_job.name}/output/model.tar.gz"
    assert (done.details["queue"], done.details["training job"]) == ("gpus", job.training_job.name)
    assert done.details["billable"] == "40 s"


def test_the_position_in_the_queue_and_the_reason_are_shown(
    platform: SageMakerPlatform, queues: ScriptedQueues
) -> None:
    for name in ("first", "second"):
        platform.submit(queued(name))
    for waiting in queues.jobs:
        waiting.wait()
    queues.jobs[1].wait("insufficient capacity")
    found = platform.describe("second")
    assert found.reason == "waits in the queue gpus at position 2: insufficient capacity"
    assert [state.name for state in platform.states("second")] == ["Queued"]
    assert "position 2" in platform.states("second")[0].message


def test_an_attempt_after_a_preemption(platform: SageMakerPlatform, job: ServiceJob) -> None:
    job.start().log("algo-1", "[rank 0] first attempt")
    job.preempt()
    waiting = platform.describe("a-job")
    assert (waiting.status, waiting.details["preempted"]) == (JobStatus.PENDING, "1 time")
    job.start().log("algo-1", "[rank 0] second attempt")
    assert platform.describe("a-job").attempt == 1
    assert list(platform.logs("a-job")) == ["[rank 0] first attempt", "[rank 0] second attempt"]


def test_the_log_is_followed_from_the_queue_over_all_attempts(job: ServiceJob) -> None:
    aws = Aws()
    answer = describe_service_job(job.arn, aws)
    assert answer is not None
    lines: list[str] = []

    def follow() -> None:
        pace = Pace(shortest=0.05, settle=0.3)
        lines.extend(logs_queued(answer, aws, follow=True, poll=0.05, pace=pace))

    thread = threading.Thread(target=follow)
    thread.start()
    job.start().log("algo-1", "[rank 0] one")
    until(lambda: bool(lines) or _read(job))
    job.training_job.fail("InternalServerError: We encountered an internal error")
    job.wait()
    job.start().log("algo-1", "[rank 0] two")
    job.training_job.complete()
    job.end("SUCCEEDED")
    thread.join(120)
    assert lines == ["[rank 0] one", "[rank 0] two"]


def _read(job: ServiceJob) -> bool:
    return job.service.count("GetLogEvents") > 0


def until(check: Callable[[], bool], timeout: float = 90) -> None:
    end = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_failed_attempt_does_not_end_a_job_that_is_queued_again(
    platform: SageMakerPlatform, job: ServiceJob
) -> None:
    job.start()
    job.training_job.fail("AlgorithmError: , exit code: 3")
    assert not platform.describe("a-job").status.is_final
    job.end("FAILED", "Received status from SageMaker: AlgorithmError")
    with pytest.raises(TrainingFailed, match="exited with code 3"):
        Job.attach("a-job", "sagemaker").wait(timeout=120)


def test_a_job_that_fails_in_the_queue_has_a_reason(platform: SageMakerPlatform, job: ServiceJob) -> None:
    job.end("FAILED", "Role arn:aws:iam::1:role/X is invalid: not authorized to perform: iam:PassRole")
    failure = platform.describe("a-job").failure
    assert failure is not None
    assert (failure.failure_class, "iam:PassRole" in failure.hint) == (FailureClass.PLATFORM, True)


def test_a_job_that_is_preempted_for_good_is_interrupted(
    platform: SageMakerPlatform, job: ServiceJob
) -> None:
    job.start()
    job.preempt()
    job.end("FAILED", "Preemption retries exhausted")
    found = platform.describe("a-job")
    assert found.status == JobStatus.INTERRUPTED
    assert found.failure is not None
    assert "preemption_configuration" in found.failure.hint


@pytest.mark.parametrize("starts", [False, True])
def test_stop(platform: SageMakerPlatform, job: ServiceJob, starts: bool) -> None:
    if starts:
        job.start()
    platform.stop("a-job")
    if starts:
        assert platform.describe("a-job").status == JobStatus.STOPPING
        job.training_job.stopped()
        job.end("FAILED", "stopped with cloudtrain")
    assert platform.describe("a-job").status == JobStatus.STOPPED
    platform.stop("a-job")
    assert job.service.count("terminateservicejob") == 1


@pytest.mark.usefixtures("job")
def test_another_machine_finds_the_job_by_its_name(
    queues: ScriptedQueues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "other"))
    queues.add("cpus")
    platform = SageMakerPlatform()
    assert Job.attach("a-job", "sagemaker").status == JobStatus.PENDING
    with pytest.raises(JobNotFound):
        platform.describe("no-job")
    with pytest.raises(JobNotFound):  # Batch's filter ignores case
        platform.describe("A-JOB")


def test_a_job_that_batch_has_forgotten(
    platform: SageMakerPlatform, queues: ScriptedQueues, job: ServiceJob
) -> None:
    job.start().complete()
    job.end("SUCCEEDED")
    platform.describe("a-job")
    queues.jobs.clear()
    found = platform.describe("a-job")
    assert (found.name, found.status) == ("a-job", JobStatus.COMPLETED)


def test_queued_jobs_are_listed_among_the_others(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService
) -> None:
    for number in range(3):
        platform.submit(queued(f"queued-{number}"))
        queues.jobs[number].created_at = 1_700_000_000 + 10 * number
    queues.jobs[0].start()
    platform.submit(request("direct"))
    service.jobs["direct"].created_at = 1_700_000_015
    listed = [(found.name, found.status) for found in platform.list()]
    assert listed == [
        ("queued-2", JobStatus.PENDING),
        ("direct", JobStatus.PENDING),
        ("queued-1", JobStatus.PENDING),
        ("queued-0", JobStatus.RUNNING),
    ]


def test_a_lost_answer_starts_no_second_job(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService
) -> None:
    service.fail("submitservicejob", Lost())
    platform.submit(queued("a-job"))
    platform.submit(queued("a-job"))
    assert len(queues.jobs) == 1
    with pytest.raises(JobExists, match="in the queue gpus"):
        platform.submit(
            queued(
                "a-job",
                serviceRequestPayload=training_request(
                    "a-job", RoleArn="arn:aws:iam::123456789012:role/Other"
                ),
            )
        )


@pytest.mark.parametrize(
    ("fields", "changes", "message", "hint"),
    [
        ({}, {"jobQueue": "no-queue"}, "JobQueue no-queue not found", "cloudtrain doctor"),
        ({"state": "DISABLED"}, {}, "DISABLED", "Enable it"),
        ({"schedulingPolicyArn": "arn"}, {}, "shareIdentifier must be", "share_identifier"),
    ],
)
def test_what_batch_refuses_is_a_sentence_with_a_hint(
    platform: SageMakerPlatform,
    queues: ScriptedQueues,
    fields: dict[str, Any],
    changes: dict[str, Any],
    message: str,
    hint: str,
) -> None:
    queues.add("gpus", **fields)
    with pytest.raises(PlatformError, match=f"job a-job cannot be queued: .*{message}") as caught:
        platform.submit(queued("a-job", **changes))
    assert hint in caught.value.hint
    assert queues.jobs == []


def test_a_caller_without_access_to_batch_still_has_its_other_jobs(
    platform: SageMakerPlatform, queues: ScriptedQueues, service: SageMakerService
) -> None:
    platform.submit(request("direct"))
    denied = ServiceError("AccessDeniedException", "not authorized to perform: batch:DescribeJobQueues", 403)
    service.fail("describejobqueues", denied, denied)
    assert [found.name for found in platform.list()] == ["direct"]
    with pytest.raises(JobNotFound):
        platform.describe("no-job")


def test_secrets_reach_batch_only(platform: SageMakerPlatform, queues: ScriptedQueues) -> None:
    payload = training_request("a-job", Environment={"TOKEN": "***", "CLOUDTRAIN_HIDDEN_VARIABLES": "TOKEN"})
    platform.submit(queued("a-job", secrets={"TOKEN": "t0ps3cret"}, serviceRequestPayload=payload))
    assert json.loads(queues.jobs[0].request["serviceRequestPayload"])["Environment"]["TOKEN"] == "t0ps3cret"
    again = platform.request("a-job")
    assert "t0ps3cret" not in again.to_json()
    assert again.body["serviceRequestPayload"] == payload


@pytest.fixture
def commands(queues: ScriptedQueues, tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "train.py").write_text("print(1)\n")
    yield tmp_path


def test_the_commands_while_the_job_waits(job: ServiceJob, commands: Path) -> None:
    job.wait()
    program = str(Path(sys.executable).parent / "cloudtrain")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [program, *arguments, "--platform", "sagemaker"],
            cwd=commands,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout + done.stderr

    assert "Pending: waits in the queue gpus at position 1" in run("describe", "a-job")
    assert run("logs", "a-job") == ""
    assert "a-job: Stopped" in run("stop", "a-job")


@pytest.mark.parametrize(
    ("fields", "changes", "what", "hint"),
    [
        ({}, {}, "", ""),
        ({}, {"jobQueue": "no-queue"}, "there is no queue no-queue", "one of: gpus"),
        ({"jobQueueType": "ECS"}, {}, "is ECS, and takes no training jobs", "Create a queue"),
        ({"state": "DISABLED"}, {}, "is DISABLED", "update-job-queue --state ENABLED"),
        ({"schedulingPolicyArn": "arn"}, {}, "names no share", "share_identifier"),
        ({}, {"shareIdentifier": "a"}, "no fair-share policy", "Remove"),
    ],
)
def test_doctor_checks_the_queue(
    queues: ScriptedQueues, fields: dict[str, Any], changes: dict[str, Any], what: str, hint: str
) -> None:
    queues.add("gpus", **fields)
    body = queued("a-job", **changes).body
    found = checks(Aws(), TrainingJob(), Request("sagemaker", "a-job", body), ())
    assert "queue jobs" in found and "role" in found
    finding = found["queue"]()
    assert finding.status == (CheckStatus.FAILED if what else CheckStatus.OK)
    assert what in finding.what and hint in finding.hint


def test_fit_through_the_queue(
    queues: ScriptedQueues,
    service: SageMakerService,
    s3: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("BATCH", "SAGEMAKER", "CLOUDWATCH_LOGS", "STS"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{name}", service.endpoint)
    (tmp_path / "train.py").write_text("print('training')")
    estimator = Estimator(
        entry_point=str(tmp_path / "train.py"),
        role="arn:aws:iam::123456789012:role/Train",
        image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        instance_type="ml.m5.xlarge",
        output_path=f"s3://{s3}/out",
        platform_options={"job_queue": "gpus", "scheduling_priority": 3},
    )

    def live() -> None:
        until(lambda: bool(queues.jobs))
        [job] = queues.jobs
        job.wait()
        until(lambda: service.count("getjobqueuesnapshot") > 0)
        job.start().log("algo-1", "[rank 0] epoch 1")
        job.training_job.complete()
        job.end("SUCCEEDED")

    thread = threading.Thread(target=live)
    thread.start()
    done = estimator.fit(job_name="from-python")
    thread.join(120)
    assert (done.name, done.status) == ("from-python", JobStatus.COMPLETED)
    lines = capsys.readouterr().out.splitlines()
    assert "[rank 0] epoch 1" in lines
    assert any("Queued: waits in the queue gpus at position 1" in line for line in lines)
    [sent] = queues.jobs
    assert sent.request["schedulingPriority"] == 3
    source = json.loads(sent.request["serviceRequestPayload"])["InputDataConfig"][1]["DataSource"]
    assert [*open_store(source["S3DataSource"]["S3Uri"]).list()]
    attached = Estimator.attach("from-python")
    assert (attached.instance_type, attached.entry_point) == ("ml.m5.xlarge", "train.py")
