"""Placeholders for `sagemaker.model` of the SDK: version 3 has ``ModelBuilder`` in its place."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home("model", "sagemaker.serve", renamed="ModelBuilder")
