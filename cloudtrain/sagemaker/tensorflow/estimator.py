"""As `sagemaker.tensorflow.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import TensorFlow

__all__ = ["TensorFlow"]
