"""Placeholders for `sagemaker.predictor` of the SDK: version 3 calls endpoints with ``endpoint.invoke(body=...)``."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home("predictor", "sagemaker.core.resources", renamed="Endpoint")
