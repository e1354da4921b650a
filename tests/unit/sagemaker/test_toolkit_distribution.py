"""A distribution in the toolkit's hyperparameters, as the SageMaker SDK writes it for each framework."""

from __future__ import annotations

from typing import Any

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.toolkit_distribution import distribution_hyperparameters
from cloudtrain.spec import TrainingJob

P4D = "ml.p4d.24xlarge"
GROUP = {"instance_group_name": "g", "instance_type": P4D, "instance_count": 1}
OTHER = {"instance_group_name": "h", "instance_type": "ml.c5.xlarge", "instance_count": 1}


def _values(
    framework: str, version: str | None, distribution: dict[str, Any], **fields: Any
) -> dict[str, Any]:
    versions = {"pytorch_version" if framework == "huggingface" else "framework_version": version}
    return distribution_hyperparameters(
        TrainingJob.from_dict(
            {"framework": framework, "instance_type": P4D, **versions, "distribution": distribution, **fields}
        )
    )


WRITTEN: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "mpi": (
        ("pytorch", "2.5.1", {"mpi": {"processes_per_host": 8, "custom_mpi_options": "-x A=1"}}),
        {
            "sagemaker_mpi_enabled": True,
            "sagemaker_mpi_num_of_processes_per_host": 8,
            "sagemaker_mpi_custom_mpi_options": "-x A=1",
        },
    ),
    "mpi, switched off": (
        ("pytorch", "2.5.1", {"mpi": {"enabled": False}}),
        {"sagemaker_mpi_enabled": False, "sagemaker_mpi_custom_mpi_options": ""},
    ),
    "mpi of MXNet": (("mxnet", "1.9.0", {"mpi": {}}), {"sagemaker_mpi_enabled": True}),
    "torch_distributed": (
        ("pytorch", "2.5.1", {"torch_distributed": {}}),
        {"sagemaker_torch_distributed_enabled": True, "sagemaker_instance_type": P4D},
    ),
    "pytorchddp is the library's launcher": (
        ("pytorch", "2.0.1", {"pytorchddp": {"custom_mpi_options": "-x A"}}),
        {
            "sagemaker_distributed_dataparallel_enabled": True,
            "sagemaker_instance_type": P4D,
            "sagemaker_distributed_dataparallel_custom_mpi_options": "-x A",
        },
    ),
    "but not of Hugging Face": (
        ("huggingface", "2.0.0", {"pytorchddp": {}}),
        {"sagemaker_pytorch_ddp_enabled": True, "sagemaker_instance_type": P4D},
    ),
    "model parallel by MPI": (
        (
            "pytorch",
            "1.13.1",
            {"mpi": {}, "smdistributed": {"modelparallel": {"parameters": {"partitions": 2}}}},
        ),
        {
            "sagemaker_mpi_enabled": True,
            "sagemaker_mpi_custom_mpi_options": "",
            "mp_parameters": {"partitions": 2},
            "sagemaker_distributed_dataparallel_enabled": False,
            "sagemaker_instance_type": P4D,
        },
    ),
    "parameter servers": (
        ("tensorflow", "2.16.2", {"parameter_server": {}}),
        {"sagemaker_parameter_server_enabled": True},
    ),
    "mirrored": (
        ("tensorflow", "2.16.2", {"multi_worker_mirrored_strategy": {}}),
        {"sagemaker_multi_worker_mirrored_strategy_enabled": True},
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_hyperparameters(case: str) -> None:
    arguments, values = WRITTEN[case]
    assert _values(*arguments) == values


def test_the_only_group_has_the_ranks() -> None:
    values = _values("pytorch", "2.5.1", {"mpi": {}}, instance_type=None, instance_groups=[GROUP])
    assert values["sagemaker_distribution_instance_groups"] == ["g"]


def test_of_several_groups_one_is_named() -> None:
    fields = {"instance_type": None, "instance_groups": [GROUP, OTHER]}
    with pytest.raises(InvalidJob, match="starts ranks in one group; name it"):
        _values("pytorch", "2.5.1", {"mpi": {}}, **fields)
    values = _values("pytorch", "2.5.1", {"mpi": {}, "instance_groups": ["g"]}, **fields)
    assert values["sagemaker_distribution_instance_groups"] == ["g"]


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "of another framework": (
        ("tensorflow", "2.16.2", {"torch_distributed": {}}),
        {},
        r"the toolkit of tensorflow cannot launch ranks with 'torch_distributed'\n  These can: pytorch, huggingface",
    ),
    "too old": (
        ("tensorflow", "2.8.0", {"multi_worker_mirrored_strategy": {}}),
        {},
        r"the toolkit of TensorFlow 2.8.0 does not support multi_worker",
    ),
    "trainium": (
        ("pytorch", "1.11.0", {"mpi": {}}),
        {"instance_type": "ml.trn1.32xlarge"},
        r"on ml.trn1.32xlarge ranks are launched by torch_distributed only",
    ),
    "cpu": (
        ("pytorch", "2.5.1", {"torch_distributed": {}}),
        {"instance_type": "ml.m5.xlarge"},
        r'has it for GPUs and Trainium, not ml.m5.xlarge\n  Use runtime="cloudtrain"',
    ),
    "shell": (
        ("pytorch", "2.5.1", {"torch_distributed": {}}),
        {"entry_point": "run.sh"},
        r"runs only Python files with torchrun, not run.sh",
    ),
    "p5": (
        ("pytorch", "2.2.0", {"smdistributed": {"dataparallel": {}}}),
        {"instance_type": "ml.p5.48xlarge"},
        r"only torch_distributed launches it on ml.p5.48xlarge",
    ),
    "library": (
        ("pytorch", "2.5.1", {"smdistributed": {"dataparallel": {}}}),
        {},
        r"the image of pytorch 2.5.1 does not have SageMaker's data parallel library",
    ),
    "groups": (
        ("tensorflow", "2.16.2", {"parameter_server": {}}),
        {"instance_type": None, "instance_groups": [GROUP]},
        r"toolkit does not start parameter_server in a group",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    arguments, fields, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message):
        _values(*arguments, **fields)
