"""As `sagemaker.inputs` of the SDK, for training."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.spec import FileSystemInput, ShuffleConfig, TrainingInput

__getattr__ = others(__name__)

__all__ = ["FileSystemInput", "ShuffleConfig", "TrainingInput"]
