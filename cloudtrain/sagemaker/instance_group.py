"""As `sagemaker.instance_group` of the SDK."""

from __future__ import annotations

from cloudtrain.spec import InstanceGroup

__all__ = ["InstanceGroup"]
