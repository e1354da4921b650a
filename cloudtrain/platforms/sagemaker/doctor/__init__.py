"""Checks for problems that would make a job fail on SageMaker."""

from cloudtrain.platforms.sagemaker.doctor.checks import checks

__all__ = ["checks"]
