"""The images of scikit-learn, XGBoost and AWS's own algorithms: those of the SageMaker SDK, in all regions."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from parity.algorithm_images import digests

from cloudtrain.aws.algorithm_images import DATA, algorithm_image, algorithm_names
from cloudtrain.aws.image_pythons import has_toolkit, image_python
from cloudtrain.aws.images import training_image
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob

SDK: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "algorithm_images.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", SDK["digests"])
def test_the_images_are_those_of_the_sdk(name: str) -> None:
    found = digests([name], SDK["regions"], SDK["versions"], algorithm_image)
    assert found[name] == SDK["digests"][name]


def test_no_algorithm_of_the_sdk_is_missing() -> None:
    assert sorted(algorithm_names()) == sorted(SDK["digests"])


def _image(**fields: Any) -> str:
    fields = {"framework_version": "1.2-1", "instance_type": "ml.m5.xlarge", **fields}
    return training_image(TrainingJob.from_dict(fields), "us-east-1")


def test_the_image_of_a_job() -> None:
    account = "683313688378.dkr.ecr.us-east-1.amazonaws.com"
    assert _image(framework="sklearn") == f"{account}/sagemaker-scikit-learn:1.2-1-cpu-py3"
    assert _image(framework="xgboost", framework_version="1.7-1") == f"{account}/sagemaker-xgboost:1.7-1"


def test_newer_versions_follow_the_pattern() -> None:
    assert _image(framework="sklearn", framework_version="1.9-1").endswith(":1.9-1-cpu-py3")
    assert _image(framework="xgboost", framework_version="9.0-1").endswith("sagemaker-xgboost:9.0-1")


REFUSED = {
    "no version": (
        {"framework_version": None},
        "sklearn needs it, or an image_uri\n  .*framework_version='1.4-2'",
    ),
    "version": ({"framework_version": "1.2"}, "AWS has no image of sklearn 1.2\n  Did you mean '1.2-1'"),
    "python": ({"py_version": "py2"}, "py_version: the images of sklearn have py3, not py2"),
    "hosts": ({"instance_count": 2}, "the toolkit of sklearn trains on 1 instance, not 2"),
    "gpu": ({"instance_type": "ml.g5.xlarge"}, "no image of sklearn 1.2-1 for ml.g5.xlarge, only for CPUs"),
    "arm": ({"instance_type": "ml.c6g.xlarge"}, "no image of sklearn for training on ml.c6g.xlarge"),
    "broken": (
        {"framework": "xgboost", "framework_version": "1.1-1"},
        "AWS has no image of xgboost 1.1-1: it cannot predict LIBSVM data",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        _image(**{"framework": "sklearn", **fields})


@pytest.mark.parametrize(
    ("image", "python"),
    [
        ("sagemaker-scikit-learn:1.0-1-cpu-py3", (3, 8)),
        ("sagemaker-scikit-learn:1.2-1-cpu-py3", (3, 9)),
        ("sagemaker-scikit-learn:1.9-1-cpu-py3", None),
        ("sagemaker-xgboost:1.2-2", (3, 7)),
        ("sagemaker-xgboost:1.5-1", (3, 8)),
        ("sagemaker-xgboost:3.0-5", (3, 10)),
    ],
)
def test_the_python_of_images(image: str, python: tuple[int, int] | None) -> None:
    uri = f"683313688378.dkr.ecr.us-east-1.amazonaws.com/{image}"
    assert image_python(TrainingJob(image_uri=uri)) == python
    framework = "sklearn" if "scikit" in image else "xgboost"
    version = image.partition(":")[2].removesuffix("-cpu-py3")
    job = {"framework": framework, "framework_version": version, "py_version": "py3"}
    assert image_python(TrainingJob.from_dict(job)) == python
    assert has_toolkit(TrainingJob(image_uri=uri))


def test_the_data_names_its_date_and_source() -> None:
    data = json.loads(DATA.read_text())
    assert date.fromisoformat(data["date"]) <= date.today()
    assert data["source"].endswith("SageMaker Python SDK 2.257.7")
