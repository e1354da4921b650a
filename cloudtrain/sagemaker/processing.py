"""Placeholders for `sagemaker.processing` of the SDK: for processing jobs."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home("processing", "sagemaker.core.processing")
