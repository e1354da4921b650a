"""As `sagemaker.session` of the SDK."""

from __future__ import annotations

from cloudtrain.execution_role import get_execution_role
from cloudtrain.session import Session

__all__ = ["Session", "get_execution_role"]
