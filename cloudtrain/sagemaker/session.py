"""As `sagemaker.session` of the SDK."""

from __future__ import annotations

from cloudtrain.execution_role import get_execution_role
from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.session import Session
from cloudtrain.spec import ShuffleConfig, TrainingInput

__getattr__ = others(__name__)

__all__ = ["Session", "ShuffleConfig", "TrainingInput", "get_execution_role"]
