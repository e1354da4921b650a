"""``JumpStartEstimator`` of the SageMaker SDK: a job that trains a model of JumpStart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.estimator import Estimator
from cloudtrain.sagemaker._jumpstart import SCOPE, Model

_TAGS = "sagemaker-sdk:jumpstart-model-id", "sagemaker-sdk:jumpstart-model-version"


class JumpStartEstimator(Estimator):
    """An estimator whose image, script, model and defaults are those of a model of JumpStart.

    Args:
        model_id: for example ``huggingface-tc-bert-base-cased``.
        model_version: default: the newest.
        region: of the descriptions of the models. Default: that of the session.
        tolerate_deprecated_model, tolerate_vulnerable_model: allow a version of which AWS warns.
        arguments: other arguments of `Estimator`. They override the model's; of ``hyperparameters``,
            ``environment`` and ``metric_definitions``, each entry does.

    Raises:
        InvalidJob: as `Model` does.
        StorageError: the region has no JumpStart, or S3 denies access.
    """

    def __init__(
        self,
        model_id: str | None = None,
        model_version: str | None = None,
        hub_name: str | None = None,
        tolerate_vulnerable_model: bool | None = None,
        tolerate_deprecated_model: bool | None = None,
        region: str | None = None,
        config_name: str | None = None,
        **arguments: Any,
    ) -> None:
        model = Model(
            model_id,
            model_version or "*",
            region,
            arguments.get("sagemaker_session"),
            SCOPE,
            (tolerate_deprecated_model, tolerate_vulnerable_model),
            hub_name=hub_name,
            config_name=config_name,
        )
        given = {name: value for name, value in arguments.items() if value is not None}
        found = model.arguments(given)
        for name in ("hyperparameters", "environment"):
            given[name] = {**found.get(name, {}), **given.get(name, {})}
        own = list(given.get("metric_definitions", ()))
        names = {one["Name"] for one in own}
        given["metric_definitions"] = [
            *own,
            *(one for one in found.get("metric_definitions", ()) if one["Name"] not in names),
        ]
        given["tags"] = _tags(given.get("tags"), str(model_id), model.version)
        super().__init__(**{**found, **given})
        self.model_id, self.model_version = model_id, model_version or "*"


def _tags(tags: Any, model_id: str, version: str) -> dict[str, str]:
    """The tags with those of the SDK, which name the model."""
    given = tags if isinstance(tags, Mapping) else {one["Key"]: one["Value"] for one in tags or ()}
    return {**given, **dict(zip(_TAGS, (model_id, version), strict=True))}
