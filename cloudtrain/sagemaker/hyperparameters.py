"""As `sagemaker.hyperparameters` of the SDK, for training: the defaults of JumpStart's models."""

from __future__ import annotations

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


__getattr__ = others(__name__)

__all__ = ["retrieve_default"]
