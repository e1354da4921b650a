"""A job as the CreateTrainingJob request that SageMaker's SDK would send."""

from __future__ import annotations

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.aws import Aws
from cloudtrain.spec import TrainingJob


def render(job: TrainingJob, aws: Aws) -> Request:
    """The request for ``job``. Asks STS for the account where the default bucket is needed, and nothing else."""
    raise NotImplementedError
