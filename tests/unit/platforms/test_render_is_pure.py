"""`render` depends on its argument alone: it opens no connection, starts no process and writes no file."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest

from cloudtrain.platforms import Platform, Resolver
from cloudtrain.platforms.container import ContainerPlatform
from cloudtrain.platforms.hosts import HostsPlatform
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.platforms.pbs import CobaltPlatform, PbsPlatform, TorquePlatform
from cloudtrain.platforms.registry import BUILT_IN
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
    "fake": Case(FakePlatform, {}),
}

EFFECTS = ("socket.", "subprocess.", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.exec", "os.fork")
"""Audit events of what a pure function does not do."""


class Effect(Exception):
    """`render` had a side effect."""


watching = 0
"""The thread whose effects are refused; others may belong to a server of other tests."""


def _refuse_effects(event: str, arguments: tuple[Any, ...]) -> None:
    if watching != threading.get_ident():
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event.startswith(EFFECTS):
        raise Effect(f"{event}: {arguments}")


sys.addaudithook(_refuse_effects)


def test_every_platform_is_tried() -> None:
    assert {case.split("-")[0] for case in CASES} >= set(BUILT_IN)


@pytest.mark.parametrize("name", CASES)
def test_render_has_no_side_effects(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    platform = CASES[name].platform()
    job = _resolved(platform, CASES[name].fields)
    if home.exists():
        home.rmdir()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setattr(sys.modules[__name__], "watching", threading.get_ident())
        request = platform.render(job)
    assert not home.exists()
    assert request.job_name == "a-job"
    assert platform.render(job) == request


def test_an_effect_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "watching", threading.get_ident())
    with pytest.raises(Effect, match="open"):
        (tmp_path / "file").write_text("x")
    with pytest.raises(Effect, match="socket"):
        socket.create_connection(("127.0.0.1", 1))
    monkeypatch.setattr(sys.modules[__name__], "watching", 0)


def _resolved(platform: Platform, fields: dict[str, Any]) -> TrainingJob:
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


def test_the_session_was_not_asked() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        platform = SageMakerPlatform(boto3.Session(region_name="us-east-1"))
        platform.render(_resolved(platform, CASES["sagemaker"].fields))
    assert platform.aws._clients == {}
