"""As `sagemaker.image_uris` of the SDK: the URIs of AWS's images for training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain._sdk.left_out import code, refusal
from cloudtrain.aws.algorithm_images import algorithm_image, algorithm_names
from cloudtrain.aws.images import training_image
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.spec import TrainingJob

_FRAMEWORKS = ("huggingface", "mxnet", "pytorch", "tensorflow")

_LOCAL = {"local": "ml.m5.xlarge", "local_gpu": "ml.g5.xlarge"}
"""The instance types whose images the SDK's local mode runs."""


def retrieve(
    framework: str | None,
    region: str | None,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: str | None = None,
    accelerator_type: str | None = None,
    image_scope: str | None = None,
    container_version: str | None = None,
    distribution: Mapping[str, Any] | None = None,
    base_framework_version: str | None = None,
    training_compiler_config: Any = None,
    model_id: str | None = None,
    model_version: str | None = None,
    hub_arn: str | None = None,
    tolerate_vulnerable_model: bool = False,
    tolerate_deprecated_model: bool = False,
    sdk_version: str | None = None,
    inference_tool: str | None = None,
    serverless_inference_config: Any = None,
    sagemaker_session: Any = None,
    config_name: str | None = None,
    model_type: Any = None,
) -> str:
    """The URI of AWS's image of a framework for training. The arguments are those of the SageMaker SDK, version 2.

    Args:
        framework: ``pytorch``, ``tensorflow``, ``huggingface``, ``mxnet``, ``sklearn``, ``xgboost``, or one of
            AWS's own algorithms, such as ``kmeans`` or ``linear-learner``.
        region: the AWS region of the job.
        version: the version of the framework; of Transformers for ``huggingface``.
        py_version: for example ``py311``.
        instance_type: selects the image for CPUs, GPUs or Trainium.
        image_scope: ``training``; for ``sklearn``, ``xgboost`` and AWS's algorithms also ``inference``.
        distribution: that of the job; some distributions have their own image.
        base_framework_version: ``huggingface`` only: for example ``pytorch2.5.1``.
        model_id: a model of JumpStart, for ``image_scope="training"``, with ``model_version`` and ``instance_type``.
        others: arguments for inference, which are refused.

    Raises:
        InvalidJob: AWS has no such image, or an argument is missing.
        NotSupported: the image is not one for training.
    """
    if model_id is not None:
        from cloudtrain.sagemaker._jumpstart import Model

        flags = (tolerate_deprecated_model, tolerate_vulnerable_model)
        others = {"hub_arn": hub_arn, "config_name": config_name, "model_type": model_type}
        model = Model(model_id, model_version, region, sagemaker_session, image_scope, flags, **others)
        return model.image_uri(instance_type)
    if framework is None or region is None:
        raise InvalidJob("image_uris.retrieve needs framework and region, or the model_id of JumpStart")
    is_algorithm = framework in algorithm_names()
    left_out = {
        "accelerator_type": accelerator_type,
        "container_version": container_version,
        "training_compiler_config": training_compiler_config,
        "sdk_version": sdk_version,
        "inference_tool": inference_tool,
        "serverless_inference_config": serverless_inference_config,
        "image_scope": image_scope if image_scope != "training" and not is_algorithm else None,
    }
    used = [f"{name}={value!r}" for name, value in left_out.items() if value is not None]
    if used:
        asked = ", ".join([repr(framework), repr(region), *used])
        raise refusal(
            f"image_uris.retrieve({asked})",
            "Use the SageMaker SDK, version 3 (pip install 'sagemaker>=3'):"
            + code("from sagemaker.core import image_uris", f"image_uris.retrieve({asked}, ...)"),
        )
    if is_algorithm:
        return algorithm_image(framework, region, version, py_version, instance_type, image_scope)
    if framework not in _FRAMEWORKS:
        known = (*_FRAMEWORKS, *algorithm_names())
        raise InvalidJob(f"framework: there is no image of {framework!r}", hint=nearest(framework, known))
    if instance_type is None:
        raise InvalidJob(
            f"instance_type: {framework} has images for CPUs and for GPUs",
            hint="For example: instance_type='ml.g5.xlarge'.",
        )
    fields = {
        "framework": framework,
        "transformers_version" if framework == "huggingface" else "framework_version": version,
        "py_version": py_version,
        "instance_type": _LOCAL.get(instance_type, instance_type),
        "distribution": distribution,
        **_base(base_framework_version),
    }
    job = TrainingJob.from_dict({name: value for name, value in fields.items() if value is not None})
    return training_image(job, region)


def get_image_uri(region_name: str, repo_name: str, repo_version: str = "1") -> str:
    """`retrieve` under its name in version 1 of the SDK, for AWS's algorithms. Raises InvalidJob."""
    return retrieve(repo_name, region_name, repo_version)


def _base(version: str | None) -> dict[str, str]:
    """``pytorch2.5.1`` as the field of a job. Raises InvalidJob for another framework."""
    if version is None:
        return {}
    for name in ("pytorch", "tensorflow"):
        if version.startswith(name):
            return {f"{name}_version": version.removeprefix(name)}
    raise InvalidJob(
        f"base_framework_version: {version!r} is neither of PyTorch nor of TensorFlow",
        hint="For example: base_framework_version='pytorch2.5.1'.",
    )


__getattr__ = others(__name__)

__all__ = ["get_image_uri", "retrieve"]
