"""From a FailureReason, and the last lines of the hosts, to a report that names the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from described_answers import answer, at

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.sagemaker.describe import complete, from_failure_reason, job_facts

TRACEBACK = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    fit()
ValueError: bad data"""


def report(reason: str) -> FailureReport:
    response = answer("Failed", ("Training", 0), ("Failed", 9), FailureReason=reason, TrainingEndTime=at(9))
    return from_failure_reason(response)


def no_logs(host: str | None) -> Mapping[str, Sequence[str]]:
    raise AssertionError("the logs must not be read")


def test_the_runtimes_own_report_is_kept() -> None:
    sent = FailureReport(
        FailureClass.USER_ERROR,
        "bad data",
        "do this",
        rank=3,
        host="algo-2",
        exception_type="ValueError",
        traceback=TRACEBACK,
    )
    back = report(f"AlgorithmError: {sent.reason()}, exit code: 7")
    assert back.time == at(9).timestamp()
    assert back == FailureReport(
        **{**sent.__dict__, "exit_code": 7, "time": back.time},
    )


def test_our_own_report_is_completed_from_the_lines_of_its_rank() -> None:
    sent = FailureReport(
        FailureClass.USER_ERROR,
        "bad data",
        rank=3,
        host="algo-2",
        exception_type="ValueError",
        traceback="cut off",
    )
    asked = []

    def last_lines(host: str | None) -> Mapping[str, Sequence[str]]:
        asked.append(host)
        lines = ["[rank 3] epoch 1", "[rank 2] fine", *(f"[rank 3] {line}" for line in TRACEBACK.split("\n"))]
        return {"algo-2": lines}

    whole = complete(report(f"AlgorithmError: {sent.reason()}, exit code: 1"), last_lines)
    assert asked == ["algo-2"]
    assert whole.traceback == TRACEBACK
    assert whole.log_tail == ("epoch 1", *TRACEBACK.split("\n"))
    assert (whole.rank, whole.host, whole.message) == (3, "algo-2", "bad data")


TOOLKIT = [
    (
        'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "ValueError: bad data"\n'
        'Command "/opt/conda/bin/python3.11 train.py --lr 0.1", exit code: 1',
        FailureClass.USER_ERROR,
        "the job raised ValueError: bad data",
        1,
    ),
    (
        "ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"ModuleNotFoundError: No module named 'nosuch'\n\"\n"
        'Command "/opt/conda/bin/python3.11 train.py", exit code: 1',
        FailureClass.IMPORT_ERROR,
        "the job raised ModuleNotFoundError: No module named 'nosuch'",
        1,
    ),
    (
        'ExecuteUserScriptError:\nExitCode 1\nErrorMessage "torch.OutOfMemoryError: CUDA out of memory. Tried to',
        FailureClass.OUT_OF_MEMORY,
        "the job raised OutOfMemoryError: CUDA out of memory. Tried to",
        1,
    ),
    (
        'ExecuteUserScriptError:\nExitCode -9\nErrorMessage ""\nCommand "python train.py", exit code: 247',
        FailureClass.KILLED,
        "the job was killed by SIGKILL",
        137,
    ),
    (
        'ExecuteUserScriptError:\nExitCode 1\nErrorMessage ":RuntimeError: it broke\n"\nExtraInfo "on algo-2"\n'
        'Command "mpirun --host algo-1,algo-2 python train.py", exit code: 1',
        FailureClass.USER_ERROR,
        "the job raised RuntimeError: it broke",
        1,
    ),
    (
        ", exit code: 137",
        FailureClass.KILLED,
        "the job was killed by SIGKILL: the container exited with code 137",
        137,
    ),
    (", exit code: 3", FailureClass.USER_ERROR, "the job: the container exited with code 3", 3),
    (f"Exception during training: x\n{TRACEBACK}, exit code: 1", FailureClass.USER_ERROR, None, 1),
    ("framework error: \nit is broken, exit code: 2", FailureClass.USER_ERROR, None, 2),
]


@pytest.mark.parametrize(("said", "kind", "summary", "code"), TOOLKIT)
def test_failures_of_the_toolkit_are_shown(
    said: str, kind: FailureClass, summary: str | None, code: int
) -> None:
    found = report(f"AlgorithmError: {said}")
    assert (found.failure_class, found.exit_code) == (kind, code)
    assert summary is None or found.summary() == summary


def test_a_traceback_in_the_reason_counts() -> None:
    found = report(f"AlgorithmError: framework error: \n{TRACEBACK}, exit code: 1")
    assert (found.exception_type, found.message, found.traceback) == ("ValueError", "bad data", TRACEBACK)


PLATFORM = [
    (
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML "
        "instance type or after some time.",
        FailureClass.PLATFORM,
        "training_plan",
    ),
    (
        "InternalServerError: We encountered an internal error. Please try again.",
        FailureClass.PLATFORM,
        "again",
    ),
    (
        "ClientError: Data download failed:Please ensure that the subnet's route table has a route to an S3 VPC "
        "endpoint or a NAT device, and both the security groups and the subnet's network ACL allow outbound "
        "traffic to S3",
        FailureClass.STORAGE,
        "gateway endpoint",
    ),
    (
        "ClientError: Data download failed:Unable to download object s3://bucket/x (AccessDenied: Access Denied)",
        FailureClass.STORAGE,
        "s3:GetObject",
    ),
    (
        "ClientError: Artifact upload failed:Unable to upload file to s3://other/x (BucketRegionError: bucket must "
        "be in the same region as the job)",
        FailureClass.STORAGE,
        "region",
    ),
    (
        "ClientError: Data download failed:NoSuchKey (404): The specified key does not exist.",
        FailureClass.MISSING_DATA,
        "fit()",
    ),
    (
        "ClientError: Cannot pull algorithm container. Either the image does not exist or its permissions are "
        "incorrect.",
        FailureClass.PLATFORM,
        "image_uri",
    ),
    (
        "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on "
        "an instance.",
        FailureClass.OUT_OF_MEMORY,
        "more memory",
    ),
]


@pytest.mark.parametrize(("reason", "kind", "hint"), PLATFORM)
def test_messages_of_sagemaker_are_shown(reason: str, kind: FailureClass, hint: str) -> None:
    found = complete(report(reason), lambda host: {})
    assert (found.failure_class, found.message) == (kind, reason)
    assert hint in found.hint


def test_a_platform_failure_needs_no_logs() -> None:
    assert complete(report("InternalServerError: x"), no_logs).message == "InternalServerError: x"
    said = "ClientError: Artifact upload failed: (AccessDenied: Access Denied)"
    assert complete(report(said), no_logs).message == said
    sent = FailureReport(FailureClass.MISSING_DATA, "there is no train", host="algo-1", phase="fetch")
    assert complete(report(f"AlgorithmError: {sent.reason()}"), no_logs).message == "there is no train"


def test_no_reason_at_all() -> None:
    response = answer("Failed", ("Training", 0), ("Failed", 9))
    assert from_failure_reason(response).message == "SageMaker gives no reason"


def test_the_rank_that_mpirun_names_is_found_in_the_logs() -> None:
    lines = ["[1,mpirank:2,algo-2]<stdout>:epoch 1", "[1,mpirank:3,algo-2]<stdout>:other"]
    lines += [f"[1,mpirank:2,algo-2]<stderr>:{line}" for line in TRACEBACK.split("\n")]
    lines += ["Primary job terminated normally, but 1 process returned a non-zero exit code."]
    said = 'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage ""\nCommand "mpirun x", exit code: 1'
    found = complete(report(said), lambda host: {"algo-1": ["fine"], "algo-2": lines})
    assert found.summary() == "rank 2 on algo-2 raised ValueError: bad data"
    assert found.traceback == TRACEBACK
    assert found.log_tail == ("epoch 1", *TRACEBACK.split("\n"))


def test_without_an_exception_the_first_host_decides() -> None:
    found = complete(
        report("AlgorithmError: , exit code: 3"), lambda host: {"algo-1": ["a", "b"], "algo-2": ["c"]}
    )
    assert (found.host, found.log_tail, found.exit_code) == (
        None,
        ("a", "b"),
        3,
    )  # it may have been the other


def test_logs_that_may_not_be_read_change_nothing() -> None:
    def denied(host: str | None) -> Mapping[str, Sequence[str]]:
        raise PlatformError("denied")

    found = report("AlgorithmError: , exit code: 3")
    assert complete(found, denied) == found


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (1, "KeyError: 'SM_CHANNEL_TRAINING'", "Its channels: test, train."),
        (2, "train.py: error: unrecognized arguments: --epohcs 5", "does not declare --epohcs 5."),
        (1, "AssertionError: Torch not compiled with CUDA enabled", "built for CPUs"),
    ],
)
def test_hints_for_failures_under_the_toolkit(code: int, said: str, expected: str) -> None:
    response = answer(
        "Failed",
        ("Failed", 9),
        FailureReason=f'AlgorithmError: ExecuteUserScriptError:\nExitCode {code}\nErrorMessage "{said}"\n'
        f"Command python train.py, exit code: {code}",
        TrainingEndTime=at(9),
        InputDataConfig=[{"ChannelName": "train"}, {"ChannelName": "test"}],
    )
    found = from_failure_reason(response)
    assert expected in found.hint
    assert expected in complete(found, lambda host: {"algo-1": [said]}, job_facts(response)).hint
