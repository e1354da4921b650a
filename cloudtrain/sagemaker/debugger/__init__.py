"""As `sagemaker.debugger` of the SDK. Rules are placeholders: they run in separate jobs."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.spec import (
    CollectionConfig,
    DebuggerHookConfig,
    Profiler,
    ProfilerConfig,
    TensorBoardOutputConfig,
)

__getattr__ = others(__name__)

__all__ = [
    "CollectionConfig",
    "DebuggerHookConfig",
    "Profiler",
    "ProfilerConfig",
    "TensorBoardOutputConfig",
]
