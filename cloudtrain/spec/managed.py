"""SageMaker's managed MLflow and its model registry, with the names of the SageMaker SDK, version 3."""

from __future__ import annotations

from msgspec import Struct


class MlflowConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The managed MLflow that a job reports to, and the names of its experiment and its run there."""

    mlflow_resource_arn: str
    mlflow_experiment_name: str | None = None
    mlflow_run_name: str | None = None


class ModelPackageConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The group in the model registry that SageMaker registers the trained model in."""

    model_package_group_arn: str
    source_model_package_arn: str | None = None
