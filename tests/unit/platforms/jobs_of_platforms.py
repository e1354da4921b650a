"""A job for each platform, as it is before `render`, with values that need no account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cloudtrain.platforms import Platform, Resolver
from cloudtrain.platforms.container import ContainerPlatform
from cloudtrain.platforms.hosts import HostsPlatform
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.platforms.lsf import LsfPlatform
from cloudtrain.platforms.pbs import CobaltPlatform, PbsPlatform, TorquePlatform
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.spec import Source, TrainingJob
from cloudtrain.testing import FakePlatform

ROLE = "arn:aws:iam::123456789012:role/Train"
S3 = {"output_path": "s3://bucket/out", "inputs": {"train": "s3://bucket/train"}}
TOOLKIT = {"runtime": "toolkit", "framework": "pytorch", "framework_version": "2.3", "py_version": "py311"}


@dataclass(frozen=True)
class Case:
    platform: Callable[[], Platform]
    fields: dict[str, Any]


CASES = {
    "local": Case(LocalPlatform, {"inputs": {"train": "file:///data"}}),
    "container": Case(ContainerPlatform, {"image_uri": "image:1", "inputs": {"train": "file:///data"}}),
    "container-toolkit": Case(ContainerPlatform, {"image_uri": "image:1", **TOOLKIT}),
    "hosts": Case(HostsPlatform, {"instance_count": 2, "platform_options": {"hosts": "10.0.0.1:2,b:2"}}),
    "kubernetes": Case(
        KubernetesPlatform,
        {"image_uri": "image:1", "output_path": "s3://bucket/out", "platform_options": {"namespace": "team"}},
    ),
    "sagemaker": Case(SageMakerPlatform, {"image_uri": "image:1", "instance_type": "ml.m5.large", **S3}),
    "sagemaker-toolkit": Case(SageMakerPlatform, {"instance_type": "ml.m5.large", **TOOLKIT, **S3}),
    "slurm": Case(SlurmPlatform, {"inputs": {"train": "file:///data"}, "platform_options": {"gpus": 2}}),
    "pbs": Case(PbsPlatform, {"platform_options": {"gpus": 2}}),
    "torque": Case(TorquePlatform, {"platform_options": {"gpus": 2}}),
    "cobalt": Case(CobaltPlatform, {"platform_options": {"attrs": {"numa": "quad"}}}),
    "lsf": Case(LsfPlatform, {"platform_options": {"gpus": 2}}),
    "fake": Case(FakePlatform, {}),
}


def resolved(platform: Platform, fields: dict[str, Any]) -> TrainingJob:
    """A job as `prepare` makes it, with values that need no account."""
    job = TrainingJob.from_dict(
        {
            "job_name": "a-job",
            "entry_point": "train.py",
            "role": ROLE,
            "environment": {"A_TOKEN": "x"},
            **fields,
        }
    )
    if isinstance(platform, Resolver):
        job = platform.resolve(job)
    source = Source(f"{job.code_location or 'file:///cache'}/0123/sourcedir.tar.gz", "0123")
    return msgspec.structs.replace(job, source=source)
