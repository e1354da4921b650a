"""The Python of an image decides what starts the script, and whether AWS built the image at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain.aws.image_data import image_data, numbers
from cloudtrain.aws.image_pythons import image_python
from cloudtrain.aws.images import training_image
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import Request
from cloudtrain.platforms.common.runtime_choice import choose_runtime, runtime_warnings
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import Submission, prepare

AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
OWN = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
SAGEMAKER = {
    "entry_point": "train.py",
    "job_name": "job",
    "platform": "sagemaker",
    "instance_type": "ml.m5.xlarge",
    "role": "arn:aws:iam::123456789012:role/Train",
    "output_path": "s3://bucket/out",
    "code_location": "s3://bucket/code",
}
OLD = {"framework": "pytorch", "framework_version": "1.12.1", "py_version": "py38"}

IMAGES: dict[str, tuple[dict[str, Any], tuple[int, int] | None]] = {
    "versions": (OLD, (3, 8)),
    "py3": ({"framework": "pytorch", "framework_version": "1.5.0", "py_version": "py3"}, (3, 6)),
    "py2": ({"framework": "pytorch", "framework_version": "1.2.0", "py_version": "py2"}, (2, 7)),
    "new": ({"framework": "pytorch", "framework_version": "2.5.1", "py_version": "py311"}, (3, 11)),
    "tag": ({"image_uri": f"{AWS}/pytorch-training:1.12.1-gpu-py38-cu113-ubuntu20.04-sagemaker"}, (3, 8)),
    "new tag": ({"image_uri": f"{AWS}/pytorch-training:2.5.1-gpu-py311"}, (3, 11)),
    "generic tag": ({"image_uri": f"{AWS}/tensorflow-training:1.15.2-cpu-py3"}, (3, 6)),
    "own generic tag": ({"image_uri": f"{OWN}/mine:1-py3"}, None),
    "own tag": ({"image_uri": f"{OWN}/mine:1.0-py38-cpu"}, (3, 8)),
    "own tag and field": ({"image_uri": f"{OWN}/mine:1.0", "py_version": "py37"}, (3, 7)),
    "the tag wins": ({"image_uri": f"{OWN}/mine:1.0-py310", "py_version": "py37"}, (3, 10)),
    "docker hub": ({"image_uri": "python:3.8-slim"}, (3, 8)),
    "conda": ({"image_uri": "continuumio/miniconda3:py37_4.8.3"}, (3, 7)),
    "spelled": ({"image_uri": "nvcr.io/x/y:23.04-python3.8"}, (3, 8)),
    "not a tag": ({"image_uri": "localhost:5000/py38"}, None),
    "digest": ({"image_uri": f"{OWN}/mine@sha256:{'ab' * 32}"}, None),
    "word": ({"image_uri": f"{OWN}/mine:happy38-numpy36"}, None),
    "scikit-learn": ({"image_uri": f"{AWS}/sagemaker-scikit-learn:1.2-1-cpu-py3"}, (3, 9)),
    "unknown": ({"image_uri": "pytorch/pytorch:2.5.1-cuda12.4"}, None),
}


@pytest.mark.parametrize("name", IMAGES)
def test_the_python_of_an_image(name: str) -> None:
    fields, python = IMAGES[name]
    assert image_python(TrainingJob.from_dict(fields)) == python


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    Path("train.py").touch()

    def submit(**fields: Any) -> Submission:
        return prepare({**SAGEMAKER, **fields})

    return submit


def uses_toolkit(request: Request) -> bool:
    if request.platform == "container":
        return bool(request.body["runtime"] == "toolkit")
    return "ContainerEntrypoint" not in request.body["AlgorithmSpecification"]


CHOICES: dict[str, tuple[dict[str, Any], bool]] = {
    "old": (OLD, True),
    "old tag": ({"image_uri": f"{AWS}/pytorch-training:1.12.1-cpu-py38"}, True),
    "public": (
        {"image_uri": "public.ecr.aws/deep-learning-containers/pytorch-training:1.12.1-cpu-py38"},
        True,
    ),
    "new": ({"framework": "pytorch", "framework_version": "2.5.1", "py_version": "py311"}, False),
    "unknown": ({"image_uri": f"{OWN}/mine:1"}, False),
    "wanted": ({"image_uri": f"{OWN}/mine:1-py38", "runtime": "toolkit"}, True),
    "own": ({"image_uri": f"{OWN}/mine:1-py38"}, True),
    "own of a framework": (
        {"image_uri": f"{OWN}/mine:1", "framework": "pytorch", "py_version": "py38"},
        True,
    ),
    "copied": ({"image_uri": f"{OWN}/pytorch-training:1.12.1-cpu-py38"}, True),
}


@pytest.mark.parametrize("name", CHOICES)
def test_an_image_with_an_old_python_gets_its_toolkit(submit: Any, name: str) -> None:
    fields, toolkit = CHOICES[name]
    submission = submit(**fields)
    assert uses_toolkit(submission.request) == toolkit
    assert [one for one in submission.warnings if "too old for cloudtrain's runtime" in one] == (
        [
            "the image has Python 3.8, too old for cloudtrain's runtime: SageMaker's toolkit starts the script, "
            'as with runtime="toolkit"' + (". The image must have it" if OWN in str(fields) else "")
        ]
        if toolkit and "runtime" not in fields
        else []
    )


def test_likewise_in_local_containers(submit: Any) -> None:
    image = CHOICES["old tag"][0]
    assert uses_toolkit(submit(platform="container", output_path=None, code_location=None, **image).request)
    with pytest.raises(InvalidJob, match="runtime: cloudtrain's needs Python"):
        submit(platform="container", image_uri="python:3.8")
    own = {"image_uri": "python:3.8", "framework": "pytorch"}
    assert uses_toolkit(submit(platform="container", output_path=None, code_location=None, **own).request)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "for ec2": (
        {"image_uri": f"{AWS}/pytorch-training:1.12.1-cpu-py38-ubuntu20.04-ec2"},
        "Use an image with",
    ),
    "wanted": ({**OLD, "runtime": "cloudtrain"}, "Leave runtime out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_images_with_an_old_python_are_refused(submit: Any, name: str) -> None:
    fields, hint = REFUSED[name]
    with pytest.raises(InvalidJob, match=r"needs Python 3.9 or newer, and the image has 3\.8") as caught:
        submit(**fields)
    assert caught.value.hint.startswith(hint)


def test_what_the_toolkit_cannot_do_is_refused_with_the_reason(submit: Any) -> None:
    with pytest.raises(
        InvalidJob, match=r"arguments: .* \(it starts the script because .* has 3\.8\)"
    ) as caught:
        submit(arguments=["fit"], **OLD)
    assert caught.value.hint.startswith("Choose a framework_version with a newer Python")


@pytest.mark.parametrize(
    "distribution",
    [{"smdistributed": {"dataparallel": {"enabled": True}}}, {"pytorchddp": {"enabled": True}}],
)
def test_the_toolkit_starts_the_libraries_of_aws(distribution: Any) -> None:
    fields = {
        "entry_point": "train.py",
        "framework": "pytorch",
        "framework_version": "2.2.0",
        "py_version": "py310",
        "instance_type": "ml.p4d.24xlarge",
        "distribution": distribution,
    }
    job = TrainingJob.from_dict(fields)
    assert choose_runtime(job) == "toolkit"
    assert "SageMaker's toolkit starts the script" in runtime_warnings(job)[0]
    for other in ({**fields, "runtime": "cloudtrain"}, {**fields, "distribution": {"torch_distributed": {}}}):
        assert choose_runtime(TrainingJob.from_dict(other)) == "cloudtrain"


def image(framework: str, version: str, python: str, **more: Any) -> str:
    fields = {"framework": framework, "py_version": python, "instance_type": "ml.g5.xlarge", **more}
    if framework == "huggingface":
        fields["transformers_version"] = version
    else:
        fields["framework_version"] = version
    return training_image(TrainingJob.from_dict(fields), "us-east-1")


NEVER_BUILT: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, str]] = {
    "newer python": (
        ("pytorch", "2.5.1", "py312"),
        {},
        "py_version: AWS built the image of pytorch 2.5.1 for py311, not for py312",
        "Set py_version='py311', or framework_version='2.6.0', which has py312.",
    ),
    "short": (
        ("pytorch", "2.5", "py39"),
        {},
        "the image of pytorch 2.5 for py311, not for py39",
        "Set py_version='py311', or framework_version='1.13.1', which has py39.",
    ),
    "several": (
        ("tensorflow", "1.15.5", "py2"),
        {},
        "of tensorflow 1.15.5 for py3 and py36 and py37, not for py2",
        "Set py_version='py37', or framework_version='1.15.3', which has py2.",
    ),
    "tensorflow": (
        ("tensorflow", "2.19", "py310"),
        {},
        "of tensorflow 2.19 for py312, not for py310",
        "Set py_version='py312', or framework_version='2.18.0', which has py310.",
    ),
    "mxnet": (
        ("mxnet", "1.9.0", "py311"),
        {},
        "of mxnet 1.9.0 for py38, not for py311",
        "Set py_version='py38'. Or",
    ),
    "huggingface": (
        ("huggingface", "4.49.0", "py310"),
        {"pytorch_version": "2.5.1"},
        "of Hugging Face 4.49.0 with pytorch 2.5.1 for py311, not for py310",
        "Set py_version='py311', or transformers_version='4.36.0', which has py310.",
    ),
    "model parallel": (
        ("pytorch", "2.4.1", "py310"),
        {"distribution": {"torch_distributed": {}, "smdistributed": {"modelparallel": {}}}},
        "of pytorch 2.4.1 with SageMaker's model parallel library for py311, not for py310",
        "Set py_version='py311', or framework_version='2.3.0', which has py310.",
    ),
    "trainium": (
        ("pytorch", "1.11", "py310"),
        {"instance_type": "ml.trn1.2xlarge"},
        "of pytorch 1.11 for Trainium for py38, not for py310",
        "Set py_version='py38'. Or",
    ),
}


@pytest.mark.parametrize("name", NEVER_BUILT)
def test_images_that_aws_never_built(name: str) -> None:
    arguments, more, message, hint = NEVER_BUILT[name]
    with pytest.raises(InvalidJob) as caught:
        image(*arguments, **more)
    assert message in caught.value.message
    assert caught.value.hint.startswith(hint)


def test_every_image_that_aws_built_is_found() -> None:
    pythons = image_data()["pythons"]
    for framework in ("pytorch", "tensorflow", "mxnet"):
        for version, built in pythons[framework].items():
            if framework != "tensorflow" or numbers(version) >= (1, 11):  # older ones cannot run scripts
                for python in built.split():
                    assert f":{version}-gpu-{python}" in image(framework, version, python)
    for base in ("pytorch", "tensorflow"):
        for pair, built in pythons[f"huggingface-{base}"].items():
            version, base_version = pair.split()
            for python in built.split():
                found = image("huggingface", version, python, **{f"{base}_version": base_version})
                assert f":{base_version}-transformers{version}-gpu-{python}-" in found


@pytest.mark.parametrize(
    ("framework", "version", "python"),
    [("pytorch", "2.99.0", "py313"), ("pytorch", "2.8.1", "py313"), ("tensorflow", "2.20", "py313")],
)
def test_unknown_versions_follow_the_pattern(framework: str, version: str, python: str) -> None:
    assert image(framework, version, python) == f"{AWS}/{framework}-training:{version}-gpu-{python}"


@pytest.mark.parametrize(
    ("instance_type", "message"),
    [
        ("ml.inf1.xlarge", "AWS has no training image for ml.inf1.xlarge: Inferentia is for inference"),
        ("ml.p2.xlarge", "AWS's images of pytorch 2.5.1 do not run on ml.p2.xlarge"),
    ],
)
def test_instances_that_the_images_do_not_run_on(instance_type: str, message: str) -> None:
    with pytest.raises(InvalidJob, match=message) as caught:
        image("pytorch", "2.5.1", "py311", instance_type=instance_type)
    assert "ml.g5.xlarge" in caught.value.hint
    assert image("pytorch", "1.12.1", "py38", instance_type="ml.p2.xlarge")
