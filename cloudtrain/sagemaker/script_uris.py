"""As `sagemaker.script_uris` of the SDK, for training: the URIs of JumpStart's scripts."""

from __future__ import annotations

from typing import Any

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.sagemaker._jumpstart import Model


def retrieve(
    region: str | None = None,
    model_id: str | None = None,
    model_version: str | None = None,
    hub_arn: str | None = None,
    script_scope: str | None = None,
    tolerate_vulnerable_model: bool = False,
    tolerate_deprecated_model: bool = False,
    sagemaker_session: Any = None,
    config_name: str | None = None,
    model_type: Any = None,
) -> str:
    """The URI of the archive with a model's script. Raises the errors of `Model`."""
    flags = (tolerate_deprecated_model, tolerate_vulnerable_model)
    others = {"hub_arn": hub_arn, "config_name": config_name, "model_type": model_type}
    model = Model(model_id, model_version, region, sagemaker_session, script_scope, flags, **others)
    return model.script_uri()


__getattr__ = others(__name__)

__all__ = ["retrieve"]
