"""As `sagemaker.local` of the SDK."""

from __future__ import annotations

from cloudtrain.session import LocalSession

__all__ = ["LocalSession"]
