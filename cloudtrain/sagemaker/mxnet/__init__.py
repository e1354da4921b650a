"""As `sagemaker.mxnet` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import MXNet
from cloudtrain.sagemaker._elsewhere import of_framework

__getattr__ = of_framework("mxnet", "MXNet")

__all__ = ["MXNet"]
