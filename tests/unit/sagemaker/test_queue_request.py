"""The requests of jobs for a queue, against those of the SageMaker SDK's version 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.sagemaker.render import check, render
from cloudtrain.platforms.sagemaker.tuning import training_job_definition
from cloudtrain.spec import Source, TrainingJob

CASES = json.loads(Path("tests/data/sdk_queue/service_jobs.json").read_text(encoding="utf-8"))["cases"]
NAMES = {
    "scheduling_priority": "scheduling_priority",
    "share_identifier": "share_identifier",
    "quota_share_name": "quota_share_name",
    "retry_config": "retry_strategy",
    "preemption_config": "preemption_configuration",
    "timeout": "timeout_config",
}
"""The arguments of the SDK, and the options for them."""


def rendered(options: dict[str, Any], **fields: Any) -> dict[str, Any]:
    job = TrainingJob.from_dict(
        {
            "entry_point": "train.py",
            "job_name": "golden-job",
            "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
            "instance_type": "ml.m5.xlarge",
            "role": "arn:aws:iam::123456789012:role/Train",
            "output_path": "s3://bucket/out",
            "code_location": "s3://bucket/code",
            "platform_options": options,
            **fields,
        }
    )
    job = msgspec.structs.replace(job, source=Source("s3://bucket/code/1/sourcedir.tar.gz", "1"))
    return dict(render(job, "us-east-1").body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_request_is_that_of_the_sdk(case: dict[str, Any]) -> None:
    options = {NAMES[name]: value for name, value in case["arguments"].items()}
    body = rendered({"job_queue": "a-queue", **options}, tags=case["training_tags"])
    sent = dict(case["sent"])
    payload = body.pop("serviceRequestPayload")
    sent.pop("serviceRequestPayload")
    assert body == sent
    assert payload == {name: value for name, value in rendered({}).items() if name != "Tags"}


def test_a_number_is_short_for_a_mapping_with_one() -> None:
    body = rendered(
        {"job_queue": "q", "retry_strategy": 3, "preemption_configuration": 0, "timeout_config": 600}
    )
    assert body["retryStrategy"] == {"attempts": 3}
    assert body["preemptionConfiguration"] == {"preemptionRetriesBeforeTermination": 0}
    assert body["timeoutConfig"] == {"attemptDurationSeconds": 600}


def test_a_long_job_is_not_ended_by_the_sdks_limit_of_a_day() -> None:
    assert "timeoutConfig" not in rendered({"job_queue": "q"}, max_run=5 * 86400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job_queu": "q"}, r"unknown field 'platform_options\.job_queu'.*"),
        ({"job_queue": ""}, r"platform_options\.job_queue"),
        ({"scheduling_priority": 3}, "scheduling_priority: needs job_queue"),
        ({"job_queue": "q", "scheduling_priority": 10_000}, r"scheduling_priority: expected"),
        ({"job_queue": "q", "retry_strategy": 11}, r"retry_strategy: expected"),
        ({"job_queue": "q", "retry_strategy": {"attempt": 3}}, "attempt"),
        ({"job_queue": "q", "share_identifier": "a", "quota_share_name": "b"}, "only one kind of shares"),
        ({"job_queue": "q", "engine": "docker"}, "needs the platform container"),
    ],
)
def test_a_wrong_option_is_one_clear_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        check(TrainingJob.from_dict({"platform_options": options, "role": "r/x"}))


def test_another_platform_refuses_a_queue() -> None:
    from cloudtrain.platforms.container.render import ContainerOptions

    with pytest.raises(InvalidJob, match="needs the platform sagemaker"):
        ContainerOptions.of(TrainingJob.from_dict({"platform_options": {"job_queue": "q"}}))


def test_a_tuning_job_refuses_a_queue() -> None:
    with pytest.raises(InvalidJob, match=r"platform_options\.job_queue: a tuning job"):
        training_job_definition(rendered({"job_queue": "q"}), ())
