"""As `sagemaker.instance_group` of the SDK."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.spec import InstanceGroup

__getattr__ = others(__name__)

__all__ = ["InstanceGroup"]
