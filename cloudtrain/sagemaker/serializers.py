"""Placeholders for `sagemaker.serializers` of the SDK: for endpoints."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home("serializers", "sagemaker.core.serializers", inert=True)
