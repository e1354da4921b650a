"""As `sagemaker.hyperparameters` of the SDK, for training: the hyperparameters of JumpStart's models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.sagemaker._jumpstart import Model


def retrieve_default(
    region: str | None = None,
    model_id: str | None = None,
    model_version: str | None = None,
    hub_arn: str | None = None,
    instance_type: str | None = None,
    include_container_hyperparameters: bool = False,
    tolerate_vulnerable_model: bool = False,
    tolerate_deprecated_model: bool = False,
    sagemaker_session: Any = None,
    config_name: str | None = None,
    model_type: Any = None,
) -> dict[str, str]:
    """The default hyperparameters of a model. Raises the errors of `Model`."""
    flags = (tolerate_deprecated_model, tolerate_vulnerable_model)
    others = {"hub_arn": hub_arn, "config_name": config_name, "model_type": model_type}
    model = Model(model_id, model_version, region, sagemaker_session, "training", flags, **others)
    return model.hyperparameters(instance_type, of_container=include_container_hyperparameters)


def validate(
    region: str | None = None,
    model_id: str | None = None,
    hub_arn: str | None = None,
    model_version: str | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    validation_mode: Any = None,
    tolerate_vulnerable_model: bool = False,
    tolerate_deprecated_model: bool = False,
    sagemaker_session: Any = None,
) -> None:
    """Check hyperparameters against the types, options and bounds in the description of a model.

    Args:
        hyperparameters: the values to check.
        validation_mode: with ``validate_algorithm``, all hyperparameters of the algorithm must be given; with
            ``validate_all``, also those of the container.

    Raises:
        InvalidJob: one is missing, unknown, of the wrong type, or out of bounds; or as `Model` does.
        StorageError: as `Model` does.
    """
    flags = (tolerate_deprecated_model, tolerate_vulnerable_model)
    model = Model(model_id, model_version, region, sagemaker_session, "training", flags, hub_arn=hub_arn)
    mode = str(getattr(validation_mode, "value", validation_mode) or "").lower()
    model.check_hyperparameters(hyperparameters or {}, mode.removeprefix("validate_"))


__getattr__ = others(__name__)

__all__ = ["retrieve_default", "validate"]
