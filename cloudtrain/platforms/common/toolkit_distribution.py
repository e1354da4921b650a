"""Converts a distribution to the hyperparameters from which SageMaker's toolkit starts the ranks."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cloudtrain.aws.image_data import numbers
from cloudtrain.aws.images import has_data_parallel
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import DataParallel, Distribution, Mpi, SmDistributed, TrainingJob

_FRAMEWORKS = {
    "torch_distributed": ("pytorch", "huggingface"),
    "pytorchddp": ("pytorch", "huggingface"),
    "pytorchxla": ("pytorch", "huggingface"),
    "smdistributed": ("pytorch", "huggingface", "tensorflow"),
    "multi_worker_mirrored_strategy": ("tensorflow",),
}
"""The frameworks whose toolkit supports a distribution. All toolkits support the distributions not listed."""

_ONE_PROCESS = ("sklearn", "xgboost")
"""The frameworks whose toolkit starts the script once on each host, and supports no distribution."""

_MIRRORED_SINCE = (2, 9)
"""The first version of TensorFlow whose toolkit supports ``MultiWorkerMirroredStrategy``."""

_USE_CLOUDTRAIN = 'Use runtime="cloudtrain", which supports it.'


def distribution_hyperparameters(job: TrainingJob) -> dict[str, Any]:
    """The toolkit's ``sagemaker_*`` and ``mp_parameters``, as Python values.

    Raises:
        InvalidJob: the toolkit, the image or the instances do not support it.
    """
    distribution = job.distribution
    if distribution is None:
        return {}
    if job.framework in ("pytorch", None) and distribution.pytorchddp:
        distribution = _launched_by_library(distribution)
    _check(job, distribution)
    if job.framework == "mxnet":
        return _mxnet(distribution)
    kind = distribution.torch_distributed
    if kind and kind.enabled:
        libraries = _libraries(job, distribution) if distribution.smdistributed else {}
        return {**libraries, "sagemaker_torch_distributed_enabled": True, **_instance_type(job)}
    if distribution.pytorchddp and distribution.pytorchddp.enabled:
        return {"sagemaker_pytorch_ddp_enabled": True, **_instance_type(job)}
    return _launched_by_toolkit(job, distribution)


def _launched_by_library(distribution: Distribution) -> Distribution:
    """``distribution`` with the data parallel library, whose launcher ``pytorchddp`` is."""
    ddp = distribution.pytorchddp
    assert ddp
    library = SmDistributed(dataparallel=DataParallel(ddp.enabled, ddp.custom_mpi_options))
    return msgspec.structs.replace(distribution, pytorchddp=None, smdistributed=library)


def _launched_by_toolkit(job: TrainingJob, distribution: Distribution) -> dict[str, Any]:
    values: dict[str, Any] = _groups(job, distribution)
    if distribution.pytorchxla:
        values["sagemaker_pytorch_xla_multi_worker_enabled"] = distribution.pytorchxla.enabled
    if distribution.parameter_server:
        values["sagemaker_parameter_server_enabled"] = distribution.parameter_server.enabled
    if distribution.mpi:
        values |= _mpi(distribution.mpi)
    if distribution.smdistributed:
        values |= _libraries(job, distribution)
    if distribution.multi_worker_mirrored_strategy:
        enabled = distribution.multi_worker_mirrored_strategy.enabled
        values["sagemaker_multi_worker_mirrored_strategy_enabled"] = enabled
    return values


def _mpi(mpi: Mpi) -> dict[str, Any]:
    values: dict[str, Any] = {"sagemaker_mpi_enabled": mpi.enabled}
    if mpi.processes_per_host:
        values["sagemaker_mpi_num_of_processes_per_host"] = mpi.processes_per_host
    return {**values, "sagemaker_mpi_custom_mpi_options": mpi.custom_mpi_options}


def _mxnet(distribution: Distribution) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if distribution.parameter_server:
        values["sagemaker_parameter_server_enabled"] = distribution.parameter_server.enabled
    if distribution.mpi:
        values |= _mpi(distribution.mpi)
        if not distribution.mpi.processes_per_host and not distribution.mpi.custom_mpi_options:
            del values["sagemaker_mpi_custom_mpi_options"]
    return values


def _libraries(job: TrainingJob, distribution: Distribution) -> dict[str, Any]:
    libraries = distribution.smdistributed
    assert libraries
    data, model = libraries.dataparallel, libraries.modelparallel
    values: dict[str, Any] = _groups(job, distribution)
    if model and model.enabled and model.parameters:
        values["mp_parameters"] = model.parameters
    values["sagemaker_distributed_dataparallel_enabled"] = bool(data and data.enabled)
    values["sagemaker_instance_type"] = job.instance_type
    if data and data.enabled:
        values["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.custom_mpi_options
    return values


def _groups(job: TrainingJob, distribution: Distribution) -> dict[str, Any]:
    """The groups that run ranks: those of the distribution, or the only one."""
    if not job.instance_groups:
        return {}
    names = distribution.instance_groups or [group.instance_group_name for group in job.instance_groups]
    return {"sagemaker_distribution_instance_groups": names}


def _instance_type(job: TrainingJob) -> dict[str, str]:
    return {"sagemaker_instance_type": job.instance_type} if job.instance_type else {}


def _check(job: TrainingJob, distribution: Distribution) -> None:
    enabled = distribution.enabled
    for name in ("processes", "horovod", "agent"):
        if name in enabled:
            raise InvalidJob(
                f"distribution: SageMaker's toolkit cannot launch ranks with {name!r}", hint=_USE_CLOUDTRAIN
            )
    for name in enabled:
        if job.framework in _ONE_PROCESS:
            raise InvalidJob(
                f"distribution: the toolkit of {job.framework} cannot launch ranks with {name!r}",
                hint="It starts the script once on each host. Remove distribution.",
            )
        frameworks = _FRAMEWORKS.get(name)
        if job.framework and frameworks and job.framework not in frameworks:
            raise InvalidJob(
                f"distribution: the toolkit of {job.framework} cannot launch ranks with {name!r}",
                hint=f"These can: {', '.join(frameworks)}.",
            )
    version = job.framework_version
    if "multi_worker_mirrored_strategy" in enabled and version and numbers(version) < _MIRRORED_SINCE:
        raise InvalidJob(
            f"distribution: the toolkit of TensorFlow {version} does not support multi_worker_mirrored_strategy",
            hint="Use version 2.9 or newer.",
        )
    if job.instance_groups:
        _check_groups(job, distribution)
    named = distribution.instance_groups
    types = [
        group.instance_type
        for group in job.instance_groups
        if not named or group.instance_group_name in named
    ] or (job.instance_types or [""])
    for kind in types:
        _check_instances(job, distribution, kind)
    torch = distribution.torch_distributed
    if torch and torch.enabled:
        if torch.processes_per_host or torch.max_restarts:
            raise InvalidJob(
                "distribution.torch_distributed: SageMaker's toolkit starts one process per GPU, without restarts",
                hint=f"Leave processes_per_host and max_restarts out. {_USE_CLOUDTRAIN}",
            )
        if job.entry_point and not job.entry_point.endswith(".py"):
            raise InvalidJob(
                f"entry_point: SageMaker's toolkit runs only Python files with torchrun, not {job.entry_point}",
                hint="Use a .py file.",
            )


def _check_groups(job: TrainingJob, distribution: Distribution) -> None:
    """The toolkit runs ranks in only one group."""
    if not distribution.enabled:
        return
    if len(job.instance_groups) > 1 and len(distribution.instance_groups) != 1:
        raise InvalidJob(
            "distribution.instance_groups: SageMaker's toolkit starts ranks in one group; name it",
            hint=f'"instance_groups": ["{job.instance_groups[0].instance_group_name}"], say.',
        )
    libraries = distribution.smdistributed
    grouped = {"mpi", "torch_distributed"} & set(distribution.enabled)
    if not grouped and not (libraries and libraries.dataparallel and libraries.dataparallel.enabled):
        raise InvalidJob(
            f"distribution: SageMaker's toolkit does not start {' and '.join(distribution.enabled)} in a group",
            hint="Use instance_type and instance_count.",
        )


def _check_instances(job: TrainingJob, distribution: Distribution, instance_type: str) -> None:
    enabled = distribution.enabled
    family = re.sub(r"^ml[._]", "", instance_type)
    if family.startswith("trn") and set(enabled) - {"torch_distributed"}:
        raise InvalidJob(
            f"distribution: on {instance_type} ranks are launched by torch_distributed only",
            hint='Use {"torch_distributed": {"enabled": True}}.',
        )
    if "torch_distributed" in enabled and not job.image_uri and not re.match("[gp]|trn", family):
        raise InvalidJob(
            f"distribution.torch_distributed: SageMaker's toolkit has it for GPUs and Trainium, not {instance_type}",
            hint=_USE_CLOUDTRAIN,
        )
    libraries = distribution.smdistributed
    if not libraries or not libraries.enabled:
        return
    if "p5.48xlarge" in instance_type and "torch_distributed" not in enabled:
        raise InvalidJob(
            f"distribution.smdistributed: only torch_distributed launches it on {instance_type}",
            hint='Add "torch_distributed": {"enabled": True}.',
        )
    if (
        libraries.dataparallel
        and libraries.dataparallel.enabled
        and not job.image_uri
        and not has_data_parallel(job)
    ):
        raise InvalidJob(
            f"distribution: the image of {job.framework} {job.framework_version} does not have SageMaker's data"
            " parallel library",
            hint='Use {"torch_distributed": {"enabled": True}}; or an image that has it: image_uri="...".',
        )
