"""The SageMaker SDK's estimators by framework: an `Estimator` that chooses AWS's image for the framework.

On platforms without images they only differ in the name of their jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.estimator import Estimator


class PyTorch(Estimator):
    """A job in AWS's image for PyTorch. Arguments stand in the order of the SageMaker SDK, version 2.

    Args:
        framework_version: of PyTorch, ``2.5.1``; with ``py_version``, ``py311``, it names the image. Or give
            ``image_uri``.
        arguments: all others of an `Estimator`.

    Raises:
        InvalidJob: as by `Estimator`.
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
        super().__init__(
            entry_point=entry_point,
            framework="pytorch",
            framework_version=framework_version,
            py_version=py_version,
            source_dir=source_dir,
            hyperparameters=hyperparameters,
            image_uri=image_uri,
            distribution=distribution,
            **arguments,
        )


class TensorFlow(Estimator):
    """A job in AWS's image for TensorFlow. Arguments stand in the order of the SageMaker SDK, version 2.

    Args:
        model_dir: given to the script as ``--model_dir``: a place in S3, unless given; ``False``: none.
        arguments: all others of an `Estimator`, its ``entry_point`` too.

    Raises:
        InvalidJob: as by `Estimator`.
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
        super().__init__(
            framework="tensorflow",
            framework_version=framework_version,
            py_version=py_version,
            model_dir=model_dir,
            image_uri=image_uri,
            distribution=distribution,
            **arguments,
        )


class HuggingFace(Estimator):
    """A job in AWS's image for Hugging Face. Arguments stand in the order of the SageMaker SDK, version 2.

    Args:
        transformers_version: ``4.49.0``; with one of ``pytorch_version`` and ``tensorflow_version``, and with
            ``py_version``, it names the image. Or give ``image_uri``.
        arguments: all others of an `Estimator`.

    Raises:
        InvalidJob: as by `Estimator`.
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
        super().__init__(
            entry_point=entry_point,
            framework="huggingface",
            transformers_version=transformers_version,
            tensorflow_version=tensorflow_version,
            pytorch_version=pytorch_version,
            py_version=py_version,
            source_dir=source_dir,
            hyperparameters=hyperparameters,
            image_uri=image_uri,
            distribution=distribution,
            **arguments,
        )


class MXNet(Estimator):
    """A job in AWS's image for MXNet. Arguments stand in the order of the SageMaker SDK, version 2.

    Args:
        framework_version: of MXNet, ``1.9.0``; with ``py_version``, ``py38``, it names the image.
        arguments: all others of an `Estimator`.

    Raises:
        InvalidJob: as by `Estimator`.
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
        super().__init__(
            entry_point=entry_point,
            framework="mxnet",
            framework_version=framework_version,
            py_version=py_version,
            source_dir=source_dir,
            hyperparameters=hyperparameters,
            image_uri=image_uri,
            distribution=distribution,
            **arguments,
        )
