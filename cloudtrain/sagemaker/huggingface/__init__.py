"""As `sagemaker.huggingface` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import HuggingFace
from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home(
    "huggingface",
    "sagemaker.serve",
    renamed="ModelBuilder",
    only=("HuggingFaceModel", "HuggingFacePredictor"),
)

__all__ = ["HuggingFace"]
