"""Placeholders for `sagemaker.deserializers` of the SDK: for endpoints."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home("deserializers", "sagemaker.core.deserializers", inert=True)
