"""As `sagemaker.local` of the SDK."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.session import LocalSession

__getattr__ = others(__name__)

__all__ = ["LocalSession"]
