"""The URIs of AWS's images: by framework, version, Python, instances and region; newer ones by the pattern."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from cloudtrain.aws.image_data import DATA
from cloudtrain.aws.images import region_warnings, training_image
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob

GPU = "ml.p4d.24xlarge"
CPU = "ml.m5.xlarge"
DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
SMP = {"torch_distributed": {}, "smdistributed": {"modelparallel": {}}}


def _image(
    framework: str, version: str, python: str, kind: str = GPU, region: str = "us-east-1", **more: Any
) -> str:
    versions = {"framework_version": version}
    if framework.startswith("huggingface"):
        framework, _, base = framework.partition("-")
        name, base_version = base.split()
        versions = {"transformers_version": version, f"{name}_version": base_version}
    fields = {"framework": framework, "py_version": python, "instance_type": kind, **versions, **more}
    return training_image(TrainingJob.from_dict(fields), region)


IMAGES = {
    "gpu": (("pytorch", "2.5.1", "py311"), f"{DLC}/pytorch-training:2.5.1-gpu-py311"),
    "cpu": (("pytorch", "2.5.1", "py311", CPU), f"{DLC}/pytorch-training:2.5.1-cpu-py311"),
    "short": (("pytorch", "2.5", "py311"), f"{DLC}/pytorch-training:2.5-gpu-py311"),
    "newer": (("pytorch", "3.14.1", "py315"), f"{DLC}/pytorch-training:3.14.1-gpu-py315"),
    "legacy": (
        ("pytorch", "1.1", "py3", CPU),
        "520713654638.dkr.ecr.us-east-1.amazonaws.com/sagemaker-pytorch:1.1-cpu-py3",
    ),
    "p4d": (("pytorch", "1.6.0", "py36"), f"{DLC}/pytorch-training:1.6.0-gpu-py36-cu110-ubuntu18.04"),
    "not p4d": (("pytorch", "1.6.0", "py36", "ml.p3.2xlarge"), f"{DLC}/pytorch-training:1.6.0-gpu-py36"),
    "trainium": (
        ("pytorch", "1.11", "py38", "ml.trn1.2xlarge"),
        f"{DLC}/pytorch-training-neuron:1.11-neuron-py38-sdk2.4.0-ubuntu20.04",
    ),
    "china": (
        ("tensorflow", "2.16.2", "py310", CPU, "cn-north-1"),
        "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/tensorflow-training:2.16.2-cpu-py310",
    ),
    "government": (
        ("tensorflow", "2.16.2", "py310", CPU, "us-gov-west-1"),
        "442386744353.dkr.ecr.us-gov-west-1.amazonaws.com/tensorflow-training:2.16.2-cpu-py310",
    ),
    "secret": (
        ("mxnet", "1.9.0", "py38", CPU, "us-isob-east-1"),
        "094389454867.dkr.ecr.us-isob-east-1.sc2s.sgov.gov/mxnet-training:1.9.0-cpu-py38",
    ),
    "python 2": (
        ("tensorflow", "1.13", "py2", CPU),
        "520713654638.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tensorflow-scriptmode:1.13-cpu-py2",
    ),
    "mxnet": (("mxnet", "1.4", "py3", CPU), f"{DLC}/mxnet-training:1.4-cpu-py3"),
    "mxnet legacy": (
        ("mxnet", "1.4.0", "py3", CPU),
        "520713654638.dkr.ecr.us-east-1.amazonaws.com/sagemaker-mxnet:1.4.0-cpu-py3",
    ),
    "hugging face": (
        ("huggingface-pytorch 2.5.1", "4.49.0", "py311"),
        f"{DLC}/huggingface-pytorch-training:2.5.1-transformers4.49.0-gpu-py311-cu124-ubuntu22.04",
    ),
    "hugging face, short": (
        ("huggingface-tensorflow 2.6", "4.17", "py38"),
        f"{DLC}/huggingface-tensorflow-training:2.6-transformers4.17-gpu-py38-cu112-ubuntu20.04",
    ),
    "hugging face, first": (
        ("huggingface-pytorch 1.6.0", "4.4.2", "py36"),
        f"{DLC}/huggingface-pytorch-training:1.6.0-transformers4.4.2-gpu-py36-cu110-ubuntu18.04",
    ),
    "hugging face, newer for a known PyTorch": (
        ("huggingface-pytorch 2.5.1", "4.99.0", "py311"),
        f"{DLC}/huggingface-pytorch-training:2.5.1-transformers4.99.0-gpu-py311-cu124-ubuntu22.04",
    ),
    "hugging face, newer": (
        ("huggingface-pytorch 3.0.0", "5.0.0", "py314"),
        f"{DLC}/huggingface-pytorch-training:3.0.0-transformers5.0.0-gpu-py314-cu129-ubuntu22.04",
    ),
}


@pytest.mark.parametrize("case", IMAGES)
def test_uri(case: str) -> None:
    arguments, uri = IMAGES[case]
    assert _image(*arguments) == uri


@pytest.mark.parametrize(
    ("version", "python", "kind", "cuda"),
    [
        ("2.0.1", "py310", GPU, "cu118"),
        ("2.0.1", "py310", "ml.p5.48xlarge", "cu121"),
        ("2.2.0", "py310", GPU, "cu121"),
        ("2.5.0", "py311", GPU, "cu124"),
    ],
)
def test_model_parallel_has_its_own_images(version: str, python: str, kind: str, cuda: str) -> None:
    uri = _image("pytorch", version, python, kind, distribution=SMP)
    account = "658645717510.dkr.ecr.us-east-1.amazonaws.com"
    assert uri == f"{account}/smdistributed-modelparallel:{version}-gpu-{python}-{cuda}"


def test_the_image_itself_takes_precedence() -> None:
    assert _image("pytorch", "2.5.1", "py311", image_uri="mine:1") == "mine:1"


def test_of_several_groups_those_with_gpus_choose() -> None:
    kinds = ("ml.c5.xlarge", "ml.g5.xlarge")
    groups = [{"instance_group_name": kind[3], "instance_type": kind, "instance_count": 1} for kind in kinds]
    fields = {
        "framework": "pytorch",
        "framework_version": "2.5.1",
        "py_version": "py311",
        "instance_groups": groups,
    }
    assert training_image(TrainingJob.from_dict(fields), "us-east-1").endswith(":2.5.1-gpu-py311")


REFUSED = {
    "no framework": ({}, r"image_uri: SageMaker needs an image, or a framework"),
    "no version": ({"framework": "pytorch"}, r"framework_version and py_version: pytorch needs both"),
    **{
        f"version {version!r}": (
            {"framework": "pytorch", "framework_version": version, "py_version": "py311"},
            rf"framework_version: AWS has no image of pytorch {version}\n  Known: 0\.4\.0, .*2\.5\.1",
        )
        for version in ("latest", "2.x", "2", "v2.5", "2.5.1 ", "2.3.7", "1.99")
    },
    "version of hugging face": (
        {
            "framework": "huggingface",
            "transformers_version": "latest",
            "pytorch_version": "2.5.1",
            "py_version": "py311",
            "instance_type": GPU,
        },
        r"transformers_version: AWS has no image of Hugging Face latest",
    ),
    "no base": (
        {"framework": "huggingface", "transformers_version": "4.49.0", "py_version": "py311"},
        r"one of pyt",
    ),
    "legacy mode": (
        {"framework": "tensorflow", "framework_version": "1.10", "py_version": "py2"},
        r"TensorFlow 1.10 cannot run scripts",
    ),
    "hugging face on CPU": (
        {
            "framework": "huggingface",
            "transformers_version": "4.49.0",
            "pytorch_version": "2.5.1",
            "py_version": "py311",
            "instance_type": CPU,
        },
        r"instance_type: AWS has no Hugging Face image for ml.m5.xlarge",
    ),
    "unknown neuron": (
        {
            "framework": "pytorch",
            "framework_version": "2.7",
            "py_version": "py310",
            "instance_type": "ml.trn1.2xlarge",
        },
        r"image_uri: the image of pytorch 2.7 for ml.trn1.2xlarge is not known",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        training_image(TrainingJob.from_dict({"instance_type": GPU, **fields}), "us-east-1")


def test_a_region_without_an_account_is_refused() -> None:
    with pytest.raises(InvalidJob, match="the account of pytorch-training in xx-north-1 is not known"):
        _image("pytorch", "2.5.1", "py311", region="xx-north-1")


def test_the_data_names_its_date_and_source() -> None:
    data = json.loads(DATA.read_text())
    assert date.fromisoformat(data["date"]) <= date.today()
    assert data["source"].endswith("SageMaker Python SDK 2.257.7")


def test_an_image_of_another_region_is_warned_of() -> None:
    """The SageMaker SDK sends it, too: `image_uri_region` may be any."""
    image = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.5.1-gpu-py311"
    [warning] = region_warnings(TrainingJob(image_uri=image), "us-east-1")
    assert warning.startswith("image_uri: the image is in eu-west-1, and the job runs in us-east-1")
    for other in (None, "mine:1", "registry.example.org/mine:1", image.replace("eu-west-1", "us-east-1")):
        assert region_warnings(TrainingJob(image_uri=other), "us-east-1") == []
