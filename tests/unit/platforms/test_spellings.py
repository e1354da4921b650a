"""Hyperparameters reach the script as SageMaker's toolkit passes them, value by value, on every platform.

``tests/data/toolkit_spellings.json`` has the answers of the toolkit itself: ``tests/parity/record_spellings.py``
records them. The conformance suite compares the command lines of real jobs with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

from cloudtrain.contract import Launcher, Paths
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.launchers.launch_plan import make_launch_plan
from cloudtrain.spec import TrainingJob, parse_yaml
from cloudtrain.submission import prepare

RECORDED = json.loads(
    (Path(__file__).parents[2] / "data" / "toolkit_spellings.json").read_text(encoding="utf-8")
)
PYTHON = {name: eval(text, {"numpy": numpy}) for name, text in RECORDED["python"].items()}
YAML = parse_yaml(RECORDED["yaml"])

PLATFORMS: dict[str, dict[str, Any]] = {
    "local": {"platform": "local"},
    "container": {"platform": "container", "image_uri": "my:1"},
    "container-toolkit": {"platform": "container", "image_uri": "my:1", "runtime": "toolkit"},
    "sagemaker": {"platform": "sagemaker"},
    "sagemaker-toolkit": {"platform": "sagemaker", "runtime": "toolkit"},
}
SAGEMAKER = {
    "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/my:1",
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


def sent(platform: str, hyperparameters: Mapping[str, Any]) -> dict[str, str]:
    """The hyperparameters of the platform's request."""
    place = {**(SAGEMAKER if "sagemaker" in platform else {}), **PLATFORMS[platform]}
    fields = {"entry_point": "train.py", "source_dir": ".", "job_name": "job", **place}
    body = prepare({**fields, "hyperparameters": hyperparameters}).request.body
    found: dict[str, str] = body.get("hyperparameters") or body["HyperParameters"]
    return found


def received(tmp_path: Path, document: Mapping[str, str], launcher: Launcher | None = None) -> dict[str, Any]:
    """The command line and the variables of a rank on a host with this ``hyperparameters.json``."""
    paths = Paths(tmp_path / "host")
    paths.make()
    (paths.code / "train.py").touch()
    options = {key: json.dumps(value) for key, value in (launcher or Launcher()).to_hyperparameters().items()}
    document = {"sagemaker_program": "train.py", **document, **options}
    (paths.input_config / "hyperparameters.json").write_text(json.dumps(document))
    plan = make_launch_plan(HostConfig.read(paths, {}), "python", ("a", 1), HorovodChoice(), {})
    [script, *arguments] = plan.rank_arguments
    variables = {
        name: text
        for name, text in plan.environment.items()
        if name.startswith("SM_HP") or name == "SM_USER_ARGS"
    }
    assert script == "train.py"
    return {"arguments": arguments, "variables": variables}


def test_values_of_python(platform: str, tmp_path: Path) -> None:
    assert received(tmp_path, sent(platform, PYTHON)) == RECORDED["received"]


def test_values_of_yaml(platform: str, tmp_path: Path) -> None:
    values = {**{name: json.loads(text) for name, text in RECORDED["sent"].items()}, **YAML}
    assert len(YAML) > 40
    assert received(tmp_path, sent(platform, values)) == RECORDED["received"]


def test_the_toolkit_is_sent_what_the_sdk_sends(platform: str) -> None:
    if "toolkit" in platform:
        request = sent(platform, PYTHON)
        assert {name: request[name] for name in PYTHON} == RECORDED["sent"]


@pytest.mark.parametrize("name", ["single", "processes", "torchrun", "horovod"])
def test_every_launcher_passes_the_same(tmp_path: Path, name: str) -> None:
    """The tests of mpirun run real jobs: it needs Open MPI."""
    found = received(tmp_path, RECORDED["sent"], Launcher(name))
    assert found["arguments"] == RECORDED["received"]["arguments"]


def test_requests_of_other_programs_are_read_as_by_the_toolkit(tmp_path: Path) -> None:
    assert received(tmp_path, RECORDED["raw"]) == RECORDED["raw_received"]


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (numpy.int64(5), 5),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(1e-5), 1e-5),
        (numpy.bool_(True), True),
        (numpy.str_("adam"), "adam"),
        (numpy.array(3), 3),
        ([numpy.int32(1), (numpy.int32(2),)], [1, (2,)]),
        ({"a": {"b": numpy.float64(0.1)}}, {"a": {"b": 0.1}}),
    ],
)
def test_numbers_of_numpy_are_numbers(value: Any, same: Any) -> None:
    job = TrainingJob.from_dict({"entry_point": "train.py", "hyperparameters": {"x": value}})
    assert repr(job.hyperparameters["x"]) == repr(same)
    assert TrainingJob.from_json(job.to_json()).hyperparameters["x"] == json.loads(json.dumps(same))


@pytest.mark.parametrize("value", [float("nan"), numpy.float64("inf"), {1}, b"x", object(), numpy.array([1])])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InvalidJob, match="hyperparameter 'x' cannot be written as JSON") as caught:
        TrainingJob.from_dict({"entry_point": "train.py", "hyperparameters": {"x": value}})
    assert caught.value.hint.startswith("Use numbers, strings,")
