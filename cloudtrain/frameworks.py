"""The framework estimators of the SageMaker SDK: an `Estimator` that selects AWS's image for the framework.

Positional arguments have the order of the SDK, version 2; all arguments can be passed by name, like those of
`Estimator`. On platforms without images, the classes differ only in the default name of their jobs. All raise the
errors of `Estimator`.
"""

from __future__ import annotations

from typing import Any

from cloudtrain.estimator import Estimator

_COMMON = ("entry_point", "framework_version", "py_version", "source_dir", "hyperparameters", "image_uri")


class PyTorch(Estimator):
    """A job in AWS's PyTorch image.

    Args:
        framework_version: the version of PyTorch, for example ``2.5.1``. With ``py_version``, for example ``py311``,
            it selects the image. ``image_uri`` overrides both.
    """

    _framework = "pytorch"
    _positions = (*_COMMON, "distribution")


class TensorFlow(Estimator):
    """A job in AWS's TensorFlow image.

    Args:
        model_dir: the script's argument ``--model_dir``. Defaults to a URI in S3, and on platforms other than SageMaker
            to the folder of the model; ``False`` passes none.
    """

    _framework = "tensorflow"
    _positions = ("py_version", "framework_version", "model_dir", "image_uri", "distribution")


class HuggingFace(Estimator):
    """A job in AWS's Hugging Face image.

    Args:
        transformers_version: the version of Transformers, for example ``4.49.0``. With ``py_version``, and
            ``pytorch_version`` or ``tensorflow_version``, it selects the image. ``image_uri`` overrides them.
    """

    _framework = "huggingface"
    _positions = (
        "py_version",
        "entry_point",
        "transformers_version",
        "tensorflow_version",
        "pytorch_version",
        "source_dir",
        "hyperparameters",
        "image_uri",
        "distribution",
    )

    @property
    def framework_version(self) -> str | None:
        """The version of Transformers, as the SageMaker SDK calls it."""
        return self.fields.get("transformers_version")

    @property
    def base_framework_name(self) -> str:
        return "tensorflow" if "tensorflow_version" in self.fields else "pytorch"

    @property
    def base_framework_version(self) -> str | None:
        return self.fields.get(f"{self.base_framework_name}_version")


class MXNet(Estimator):
    """A job in AWS's MXNet image.

    Args:
        framework_version: the version of MXNet, for example ``1.9.0``. With ``py_version``, for example ``py38``, it
            selects the image. ``image_uri`` overrides both.
    """

    _framework = "mxnet"
    _positions = (*_COMMON, "distribution")


class _OfRegion(Estimator):
    """An estimator that can use the image of another region."""

    @classmethod
    def _own_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        arguments = {"py_version": "py3", **given}
        region = arguments.pop("image_uri_region", None)
        if region and not arguments.get("image_uri"):
            from cloudtrain.aws.algorithm_images import algorithm_image

            kind = arguments.get("instance_type") or arguments.get("train_instance_type")
            version = arguments.get("framework_version")
            arguments["image_uri"] = algorithm_image(
                str(cls._framework), region, version, instance_type=kind, image_scope="training"
            )
        return arguments


class SKLearn(_OfRegion):
    """A job in AWS's scikit-learn image.

    Args:
        framework_version: the version of the image, for example ``1.4-2``. ``image_uri`` overrides it.
        image_uri_region: the region of the image; defaults to that of the job.
    """

    _framework = "sklearn"
    _positions = (*_COMMON, "image_uri_region")


class XGBoost(_OfRegion):
    """A job in AWS's XGBoost image that runs a script. To train without a script, use an `Estimator` with the image.

    Args:
        framework_version: the version of the image, for example ``1.7-1``. ``image_uri`` overrides it.
        image_uri_region: the region of the image; defaults to that of the job.
    """

    _framework = "xgboost"
    _positions = (
        "entry_point",
        "framework_version",
        "source_dir",
        "hyperparameters",
        "py_version",
        "image_uri",
        "image_uri_region",
    )
