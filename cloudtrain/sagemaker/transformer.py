"""Placeholders for `sagemaker.transformer` of the SDK: for batch transform."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home("transformer", "sagemaker.core.transformer")
