"""As `sagemaker.mxnet` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import MXNet
from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home(
    "mxnet", "sagemaker.serve", renamed="ModelBuilder", only=("MXNetModel", "MXNetPredictor")
)

__all__ = ["MXNet"]
