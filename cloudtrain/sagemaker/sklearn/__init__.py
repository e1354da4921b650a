"""As `sagemaker.sklearn` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import SKLearn
from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home(
    "sklearn", "sagemaker.serve", renamed="ModelBuilder", only=("SKLearnModel", "SKLearnPredictor")
)

__all__ = ["SKLearn"]
