"""As `sagemaker.tensorflow` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import TensorFlow
from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home(
    "tensorflow", "sagemaker.serve", renamed="ModelBuilder", only=("TensorFlowModel", "TensorFlowPredictor")
)

__all__ = ["TensorFlow"]
