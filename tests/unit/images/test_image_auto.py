"""Which of cloudtrain's images a job wants."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.images import flavour_of
from cloudtrain.spec import TrainingJob

Fields = dict[str, Any]

PYTORCH = {"framework": "pytorch"}

WANTED: dict[str, tuple[Fields, bool, str]] = {
    "cpu": (PYTORCH, False, "pytorch-cpu"),
    "gpu": (PYTORCH, True, "pytorch-cuda"),
    "v100": ({**PYTORCH, "instance_type": "ml.p3.8xlarge"}, True, "pytorch-cuda126"),
    "v100 and mpi": (
        {**PYTORCH, "instance_type": "ml.p3dn.24xlarge", "distribution": {"mpi": {}}},
        True,
        "pytorch-cuda126-mpi",
    ),
    "newer gpus": ({**PYTORCH, "instance_type": "ml.p4d.24xlarge"}, True, "pytorch-cuda"),
    "v100 in tensorflow": (
        {"framework": "tensorflow", "instance_type": "ml.p3.2xlarge"},
        True,
        "tensorflow-cuda",
    ),
    "a short version": ({**PYTORCH, "framework_version": "2.13"}, False, "pytorch-cpu"),
    "python 3": ({**PYTORCH, "py_version": "py3"}, True, "pytorch-cuda"),
    "its python": ({**PYTORCH, "py_version": "py312"}, True, "pytorch-cuda"),
    "torchrun": ({**PYTORCH, "distribution": {"torch_distributed": {}}}, False, "pytorch-cpu"),
    "mpi": ({"framework": "tensorflow", "distribution": {"mpi": {}}}, True, "tensorflow-cuda-mpi"),
    "mpi disabled": ({**PYTORCH, "distribution": {"mpi": {"enabled": False}}}, False, "pytorch-cpu"),
    "cloudtrain's horovod": ({"framework": "mxnet", "distribution": {"horovod": {}}}, False, "mxnet-cpu"),
    "the real horovod": (
        {"framework": "mxnet", "distribution": {"horovod": {"implementation": "horovod"}}},
        False,
        "mxnet-cpu-horovod",
    ),
}


@pytest.mark.parametrize("case", WANTED)
def test_the_image_of_a_job(case: str) -> None:
    fields, gpu, name = WANTED[case]
    assert flavour_of(TrainingJob.from_dict({**fields, "image_uri": "auto"}), gpu=gpu).name == name


def test_the_version_of_a_job() -> None:
    job = TrainingJob.from_dict({**PYTORCH, "framework_version": "2.12.1"})
    assert flavour_of(job, gpu=False).tag.startswith("2.12.1-cpu-")


REFUSED: dict[str, tuple[Fields, bool, str]] = {
    "no framework": ({}, False, "needs a framework that cloudtrain has images of, not None"),
    "no image": ({"framework": "huggingface"}, False, "not huggingface"),
    "the real horovod on gpus": (
        {**PYTORCH, "distribution": {"horovod": {"implementation": "horovod"}}},
        True,
        "no image with the real Horovod for GPUs",
    ),
    "no gpus": ({"framework": "mxnet"}, True, "no image of mxnet for GPUs"),
    "another python": ({**PYTORCH, "py_version": "py310"}, False, "has py311, not py310"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_job_that_no_image_fits(case: str) -> None:
    fields, gpu, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message) as error:
        flavour_of(TrainingJob.from_dict(fields), gpu=gpu)
    assert "image_uri=" in error.value.hint
