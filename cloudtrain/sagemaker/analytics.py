"""As `sagemaker.analytics` of the SDK."""

from __future__ import annotations

from cloudtrain.training_analytics import TrainingJobAnalytics

__all__ = ["TrainingJobAnalytics"]
