"""What would make a job fail on SageMaker, looked for before it is submitted."""

from cloudtrain.platforms.sagemaker.doctor.checks import checks

__all__ = ["checks"]
