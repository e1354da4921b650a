"""The container platform's request for a job, and the specification of its containers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cloudtrain.checkpoint.store.attempts import Attempt
from cloudtrain.contract import JobStatus
from cloudtrain.engine.client import Docker, Podman
from cloudtrain.engine.pulling import pull_hint
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import Request
from cloudtrain.platforms.container import ContainerPlatform, Engine
from cloudtrain.platforms.container.specs import container_spec, size_in_bytes
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord
from cloudtrain.spec import Source, TrainingJob
from cloudtrain.submission import default_platform


def submitted_folder() -> JobFolder:
    folder = JobFolder.of("container", "j")
    folder.path.mkdir(parents=True)
    folder.write_record(JobRecord(JobStatus.PENDING, submitted_at=1.8e9))
    return folder


SOURCE = Source("file:///cache/0123/sourcedir.tar.gz", "0123")


def job(**fields: Any) -> TrainingJob:
    given = {
        "entry_point": "train.py",
        "image_uri": "image:1",
        "job_name": "j",
        "platform": "container",
        **fields,
    }
    return msgspec.structs.replace(
        TrainingJob.from_dict(given), source=SOURCE if given["entry_point"] else None
    )


def body(**fields: Any) -> dict[str, Any]:
    return dict(rendered(**fields).body)


def rendered(**fields: Any) -> Request:
    platform = ContainerPlatform()
    return platform.render(platform.resolve(job(**fields)))


def test_the_runtime_starts_in_any_image() -> None:
    found = body(instance_count=2, hyperparameters={"lr": 0.1}, inputs={"train": "file:///data"})
    assert found["entrypoint"][0] == "/bin/sh"
    assert found["source"] == SOURCE.uri
    assert found["host_count"] == 2
    assert found["hyperparameters"]["sagemaker_submit_directory"] == json.dumps(SOURCE.uri)
    assert found["channels"]["train"]["TrainingInputMode"] == "File"
    assert json.loads(json.dumps(found)) == found


def test_an_image_runs_its_own_program() -> None:
    assert body(entry_point=None)["command"] == ["train"]
    assert "entrypoint" not in body(entry_point=None)
    own = body(entry_point=None, container_entry_point=["/run"], container_arguments=["--fast"])
    assert (own["entrypoint"], own["command"]) == (["/run"], ["--fast"])
    toolkit = body(runtime="toolkit", framework="pytorch", framework_version="2.3", py_version="py311")
    assert json.loads(toolkit["hyperparameters"]["sagemaker_submit_directory"]) == (
        "/opt/ml/input/data/code/sourcedir.tar.gz"
    )


def test_a_mounted_source_is_not_unpacked(tmp_path: Path) -> None:
    found = body(source_dir=str(tmp_path), platform_options={"mount_source": True})
    assert found["source"] == tmp_path.as_uri()
    assert "sagemaker_submit_directory" not in found["hyperparameters"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_uri": None}, "image_uri"),
        ({"platform_options": {"memry": "1g"}}, "unknown field 'platform_options.memry'"),
        ({"platform_options": {"memory": "much"}}, "platform_options.memory"),
        ({"platform_options": {"gpus": 0}}, "platform_options.gpus"),
        ({"platform_options": {"volumes": ["data:/data"]}}, "platform_options.volumes"),
        ({"platform_options": {"volumes": ["/nowhere/at/all:/data"]}}, "there is no /nowhere/at/all"),
        ({"platform_options": {"mount_source": True}}, "has no source_dir"),
        ({"platform_options": {"mount_source": "/nowhere/at/all"}}, "is not a folder"),
        ({"platform_options": {"capabilities": ["net_raw"]}}, "platform_options.capabilities"),
        ({"inputs": {"code": "file:///data"}}, "inputs.code"),
        ({"container_arguments": ["x"]}, "container_arguments"),
        ({"entry_point": None, "runtime": "cloudtrain"}, "entry_point"),
        ({"inputs": {"train": {"s3_data": "s3://b/k", "compression": "Gzip"}}}, "compression"),
        (
            {"input_mode": "Pipe", "inputs": {"train": {"s3_data": "s3://b/k", "attribute_names": ["a"]}}},
            "attribute_names",
        ),
    ],
)
def test_invalid_jobs(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        body(**fields)


def test_capabilities() -> None:
    given = {"capabilities": ["NET_RAW", "CAP_IPC_LOCK", "KILL"], "new_privileges": True}
    folder = submitted_folder()
    specs = [
        container_spec(folder, body(**fields), 0, "algo-1", 0, [], None, 1 << 30)
        for fields in ({}, {"entry_point": None}, {"platform_options": given})
    ]
    own = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"]
    services = ["AUDIT_WRITE", "NET_BIND_SERVICE", "SYS_CHROOT"]
    assert [spec.capabilities for spec in specs] == [
        own,
        sorted([*own, *services]),
        sorted([*own, "IPC_LOCK", "NET_RAW"]),
    ]
    assert [spec.new_privileges for spec in specs] == [False, False, True]


def test_secrets_are_not_in_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    request = rendered(environment={"WANDB_API_KEY": "k-1", "A": "b"})
    assert "k-1" not in request.to_json()
    assert request.secrets == {"WANDB_API_KEY": "k-1"}
    monkeypatch.setenv("WANDB_API_KEY", "k-1")  # the supervisor's environment has the secrets
    environment = container_spec(
        submitted_folder(), request.body, 0, "algo-1", 0, [], None, 1 << 30
    ).environment
    assert (environment["WANDB_API_KEY"], environment["A"]) == ("k-1", "b")


def test_a_container_gets_only_the_settings_that_it_needs() -> None:
    folder = submitted_folder()
    request = body(
        instance_count=2,
        output_path="s3://bucket/out",
        checkpoint_s3_uri="s3://bucket/saved",
        checkpoint_local_path="/saved",
        inputs={"train": "s3://bucket/train"},
        platform_options={"memory": "1.5g", "gpus": 2},
    )
    spec = container_spec(folder, request, 1, "algo-2", 3, [], "1234:100", 1 << 30)
    settings = {name: value for name, value in spec.environment.items() if name.startswith("CLOUDTRAIN_")}
    assert settings["CLOUDTRAIN_CHECKPOINT_URI"] == "file:///saved"
    assert settings["CLOUDTRAIN_ATTEMPT"] == "3"
    assert settings["CLOUDTRAIN_RUN_ID"] == folder.run_id
    assert not {"CLOUDTRAIN_OUTPUT_URI", "CLOUDTRAIN_CHANNELS", "CLOUDTRAIN_RENDEZVOUS"} & set(settings)
    assert (spec.gpus, spec.memory, spec.user) == (["2", "3"], 3 << 29, "1234:100")
    assert spec.environment["HOME"] == "/tmp"
    assert spec.hostname == "algo-2"
    assert spec.labels["cloudtrain.folder"] == str(folder.path)


def test_the_first_attempt_has_a_number_too() -> None:
    """Without it, what the first attempt saves is not kept apart from what the second one does."""
    environment = container_spec(submitted_folder(), body(), 0, "algo-1", 0, [], None, 1 << 30).environment
    assert Attempt.of(environment) == Attempt(environment["CLOUDTRAIN_RUN_ID"], 0)


def test_local_gpu_selects_all_gpus() -> None:
    assert body(instance_type="local_gpu")["resources"]["gpus"] == "all"
    assert body(instance_type="local")["resources"]["gpus"] is None


@pytest.mark.parametrize(
    ("fields", "platform"),
    [
        ({}, "local"),
        ({"instance_type": "local"}, "local"),
        ({"instance_type": "local", "image_uri": "i"}, "container"),
        ({"instance_type": "local_gpu", "image_uri": "auto"}, "container"),
        ({"image_uri": "i"}, "container"),
        ({"instance_type": "ml.m5.large", "image_uri": "i"}, "sagemaker"),
    ],
)
def test_the_default_platform(fields: dict[str, Any], platform: str) -> None:
    assert default_platform(TrainingJob(**fields)) == platform


def test_sizes() -> None:
    assert [size_in_bytes(text) for text in ("64", "64k", "64M", "1.5g")] == [64, 65536, 64 << 20, 3 << 29]


@pytest.mark.parametrize(
    ("image", "said", "hint"),
    [
        ("pytorch/pytorch:9", "manifest unknown", "Check the name and the tag"),
        ("me/private", "pull access denied for me/private", "Log in: docker login$"),
        ("ghcr.io/me/private", "unauthorized", "docker login ghcr.io"),
        (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1",
            "no basic auth credentials",
            "get-login-password --region eu-west-1 .*--password-stdin 123456789012.dkr.ecr.eu-west-1",
        ),
        ("image", "dial tcp: lookup registry-1.docker.io: no such host", "can be reached"),
    ],
)
def test_hints_for_images_that_cannot_be_pulled(image: str, said: str, hint: str) -> None:
    assert re.search(hint, pull_hint(image, said))


def test_device_requests_of_each_engine() -> None:
    docker, podman = (
        kind(Engine(name, "unix:///nowhere", "here"), None)
        for kind, name in ((Docker, "docker"), (Podman, "podman"))
    )
    [every], [some] = docker.device_requests("all"), docker.device_requests(["0", "1"])
    assert (every["Count"], every["Capabilities"]) == (-1, [["gpu"]])
    assert some["DeviceIDs"] == ["0", "1"]
    [described] = podman.device_requests(["0", "1"])
    assert (described["Driver"], described["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=0", "nvidia.com/gpu=1"])
