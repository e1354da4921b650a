"""The framework estimators of the SageMaker SDK: an `Estimator` that selects AWS's image for the framework.

On platforms without images, they differ only in the default name of their jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.estimator import Estimator


class PyTorch(Estimator):
    """A job in AWS's PyTorch image. Positional arguments have the order of the SageMaker SDK, version 2.

    Args:
        framework_version: the version of PyTorch, for example ``2.5.1``. With ``py_version``, for example ``py311``,
            it selects the image. ``image_uri`` overrides both.
        arguments: other arguments of `Estimator`.

    Raises:
        InvalidJob: as in `Estimator`.
    """

    def __init__(
        self,
        entry_point: str | Path | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(framework="pytorch", **_named(locals()))


class TensorFlow(Estimator):
    """A job in AWS's TensorFlow image. Positional arguments have the order of the SageMaker SDK, version 2.

    Args:
        model_dir: the script's argument ``--model_dir``. Defaults to a URI in S3, and on other platforms than SageMaker
            to the folder of the model; ``False`` passes none.
        arguments: other arguments of `Estimator`, including ``entry_point``.

    Raises:
        InvalidJob: as in `Estimator`.
    """

    def __init__(
        self,
        py_version: str | None = None,
        framework_version: str | None = None,
        model_dir: str | bool | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(framework="tensorflow", **_named(locals()))


class HuggingFace(Estimator):
    """A job in AWS's Hugging Face image. Positional arguments have the order of the SageMaker SDK, version 2.

    Args:
        transformers_version: the version of Transformers, for example ``4.49.0``. With ``py_version``, and
            ``pytorch_version`` or ``tensorflow_version``, it selects the image. ``image_uri`` overrides them.
        arguments: other arguments of `Estimator`.

    Raises:
        InvalidJob: as in `Estimator`.
    """

    def __init__(
        self,
        py_version: str | None = None,
        entry_point: str | Path | None = None,
        transformers_version: str | None = None,
        tensorflow_version: str | None = None,
        pytorch_version: str | None = None,
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(framework="huggingface", **_named(locals()))

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
    """A job in AWS's MXNet image. Positional arguments have the order of the SageMaker SDK, version 2.

    Args:
        framework_version: the version of MXNet, for example ``1.9.0``. With ``py_version``, for example ``py38``, it
            selects the image. ``image_uri`` overrides both.
        arguments: other arguments of `Estimator`.

    Raises:
        InvalidJob: as in `Estimator`.
    """

    def __init__(
        self,
        entry_point: str | Path | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        distribution: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(framework="mxnet", **_named(locals()))


class SKLearn(Estimator):
    """A job in AWS's scikit-learn image. Positional arguments have the order of the SageMaker SDK, version 2.

    Args:
        framework_version: the version of the image, for example ``1.4-2``. ``image_uri`` overrides it.
        image_uri_region: the region of the image; defaults to that of the job.
        arguments: other arguments of `Estimator`.

    Raises:
        InvalidJob: as in `Estimator`.
    """

    def __init__(
        self,
        entry_point: str | Path | None = None,
        framework_version: str | None = None,
        py_version: str | None = "py3",
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        image_uri_region: str | None = None,
        **arguments: Any,
    ) -> None:
        image_uri = image_uri or _image_in("sklearn", image_uri_region, framework_version, arguments)
        super().__init__(framework="sklearn", **_named(locals()))


class XGBoost(Estimator):
    """A job in AWS's XGBoost image that runs a script. Positional arguments have the order of the SageMaker SDK.

    To train without a script, use an `Estimator` with the image.

    Args:
        framework_version: the version of the image, for example ``1.7-1``. ``image_uri`` overrides it.
        image_uri_region: the region of the image; defaults to that of the job.
        arguments: other arguments of `Estimator`.

    Raises:
        InvalidJob: as in `Estimator`.
    """

    def __init__(
        self,
        entry_point: str | Path | None = None,
        framework_version: str | None = None,
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        py_version: str | None = "py3",
        image_uri: str | None = None,
        image_uri_region: str | None = None,
        **arguments: Any,
    ) -> None:
        image_uri = image_uri or _image_in("xgboost", image_uri_region, framework_version, arguments)
        super().__init__(framework="xgboost", **_named(locals()))


def _named(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor, its ``locals()``, as those of `Estimator`."""
    own = ("self", "arguments", "image_uri_region", "__class__")
    return {**{name: value for name, value in arguments.items() if name not in own}, **arguments["arguments"]}


def _image_in(
    framework: str, region: str | None, version: str | None, arguments: Mapping[str, Any]
) -> str | None:
    """The image in the given region; None without one. Raises InvalidJob if AWS has no such image."""
    if region is None:
        return None
    from cloudtrain.aws.algorithm_images import algorithm_image

    kind = arguments.get("instance_type") or arguments.get("train_instance_type")
    return algorithm_image(framework, region, version, instance_type=kind, image_scope="training")
