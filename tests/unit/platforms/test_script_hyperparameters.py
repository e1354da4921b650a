"""The command line that each platform passes to the script: ``model_dir``, spelling, arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import decode_hyperparameters, to_arguments
from cloudtrain.errors import InvalidJob
from cloudtrain.submission import prepare

PLATFORMS: dict[str, dict[str, Any]] = {
    "local": {"platform": "local"},
    "container": {"platform": "container", "image_uri": "tf:1"},
    "container-toolkit": {"platform": "container", "image_uri": "tf:1", "runtime": "toolkit"},
    "sagemaker": {"platform": "sagemaker"},
    "sagemaker-toolkit": {"platform": "sagemaker", "runtime": "toolkit"},
}
SAGEMAKER = {
    "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/tf:1",
    "instance_type": "ml.m5.xlarge",
    "role": "arn:aws:iam::123456789012:role/Train",
    "output_path": "s3://bucket/out",
    "code_location": "s3://bucket/code",
}


@pytest.fixture(params=PLATFORMS)
def platform(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    Path("train.py").write_text("")
    return str(request.param)


def hyperparameters(platform: str, **fields: Any) -> dict[str, Any]:
    """The decoded hyperparameters of the request."""
    place = {**(SAGEMAKER if "sagemaker" in platform else {}), **PLATFORMS[platform]}
    body = prepare(
        {"entry_point": "train.py", "source_dir": ".", "job_name": "job", **place, **fields}
    ).request.body
    return decode_hyperparameters(body.get("hyperparameters") or body["HyperParameters"])


def test_tensorflow_gets_a_model_dir(platform: str) -> None:
    in_s3 = "s3://bucket/out/job/model" if "sagemaker" in platform else "/opt/ml/model"
    tensorflow = {"framework": "tensorflow"}
    assert hyperparameters(platform, **tensorflow)["model_dir"] == in_s3
    mpi: dict[str, Any] = {"distribution": {"mpi": {"processes_per_host": 1}}}
    assert hyperparameters(platform, **tensorflow, **mpi)["model_dir"] == "/opt/ml/model"
    assert "model_dir" not in hyperparameters(platform, **tensorflow, model_dir=False)
    assert "model_dir" not in hyperparameters(platform)
    own = {"hyperparameters": {"model_dir": "here"}}
    assert hyperparameters(platform, **tensorflow, **own)["model_dir"] == "here"


def test_an_explicit_model_dir_is_passed(platform: str) -> None:
    for framework in ({}, {"framework": "tensorflow"}):
        assert (
            hyperparameters(platform, model_dir="s3://bucket/mine", **framework)["model_dir"]
            == "s3://bucket/mine"
        )


def test_the_spelling_by_choice(platform: str) -> None:
    given = {"flag": True, "opt": {"a": 1}, "text": "True"}
    found = hyperparameters(platform, hyperparameters=given)
    assert {name: found[name] for name in given} == given
    assert "sagemaker_hyperparameter_encoding" not in found
    found = hyperparameters(platform, hyperparameters=given, hyperparameter_encoding="json", source_dir=None)
    if "toolkit" in platform:  # it spells only values that are not strings
        assert to_arguments({name: found[name] for name in given}) == to_arguments(given, as_json=True)
    else:
        assert found["sagemaker_hyperparameter_encoding"] == "json"
        assert {name: found[name] for name in given} == given


def test_arguments_need_cloudtrain_s_runtime(platform: str) -> None:
    if "toolkit" not in platform:
        assert hyperparameters(platform, arguments=["fit"])
        return
    with pytest.raises(InvalidJob, match=r"toolkit passes only hyperparameters .* sorted by name") as caught:
        hyperparameters(platform, arguments=["fit"])
    assert caught.value.hint == 'Use runtime="cloudtrain", or set hyperparameters instead.'


def test_an_image_s_program_has_its_own_arguments() -> None:
    image = {"platform": "container", "image_uri": "my:1", "job_name": "job"}
    with pytest.raises(InvalidJob, match="arguments: the job has no script") as caught:
        prepare({**image, "arguments": ["fit"]})
    assert "container_arguments" in caught.value.hint
    assert json.loads(prepare({**image, "container_arguments": ["fit"]}).request.to_json())["command"] == [
        "fit"
    ]
