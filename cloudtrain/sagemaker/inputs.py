"""As `sagemaker.inputs` of the SDK, for training."""

from __future__ import annotations

from cloudtrain.spec import FileSystemInput, ShuffleConfig, TrainingInput

__all__ = ["FileSystemInput", "ShuffleConfig", "TrainingInput"]
