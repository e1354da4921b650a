"""As `sagemaker.mxnet.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import MXNet

__all__ = ["MXNet"]
