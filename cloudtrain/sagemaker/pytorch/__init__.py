"""As `sagemaker.pytorch` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import PyTorch
from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home(
    "pytorch", "sagemaker.serve", renamed="ModelBuilder", only=("PyTorchModel", "PyTorchPredictor")
)

__all__ = ["PyTorch"]
