"""Fields without effect on Kubernetes are warned about, with what to use instead."""

from __future__ import annotations

import pytest

from cloudtrain.platforms import JobWarnings
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.spec import TrainingJob

STORED = {"checkpoint_s3_uri": "s3://bucket/checkpoints"}


def warned(**fields: object) -> list[str]:
    platform = KubernetesPlatform()
    assert isinstance(platform, JobWarnings)
    return platform.job_warnings(TrainingJob.from_dict({"entry_point": "train.py", **STORED, **fields}))


def test_host_network_has_no_policy() -> None:
    (text,) = warned(platform_options={"host_network": True})
    assert "other pods can reach those of this job" in text
    assert warned(platform_options={"host_network": True, "network_policy": False}) == []


@pytest.mark.parametrize(
    ("fields", "name", "instead"),
    [
        ({"role": "training"}, "role", "service_account"),
        ({"tags": {"team": "vision"}}, "tags", "labels"),
        ({"volume_size": 100}, "volume_size", "disk"),
        ({"max_pending_time_in_seconds": 7200}, "max_pending_time_in_seconds", "cloudtrain stop"),
    ],
)
def test_a_field_without_effect_names_what_to_use_instead(
    fields: dict[str, object], name: str, instead: str
) -> None:
    (text,) = warned(**fields)
    assert text.startswith(f"{name} has no effect on Kubernetes: ")
    assert instead in text


def test_each_field_without_effect_is_warned_about() -> None:
    found = warned(
        use_spot_instances=True,
        max_wait=86400,
        keep_alive_period_in_seconds=600,
        training_plan="arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p",
    )
    assert [text.partition(" has")[0].partition(" have")[0] for text in found] == [
        "use_spot_instances",
        "max_wait",
        "keep_alive_period_in_seconds, training_plan",
    ]


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({}, "starts from zero, without a limit"),
        ({"output_path": "s3://bucket/out"}, "ends after platform_options.max_preemptions (10)"),
    ],
)
def test_a_warning_names_how_often_a_job_without_checkpoints_restarts(
    fields: dict[str, str], end: str
) -> None:
    (text,) = warned(checkpoint_s3_uri=None, **fields)
    assert text.startswith("no checkpoint_s3_uri") and text.endswith(end)


def test_an_ordinary_job_has_no_warnings() -> None:
    assert warned(output_path="s3://bucket/jobs", max_retry_attempts=2, image_uri="python:3.12") == []
