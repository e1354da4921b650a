"""As `sagemaker.debugger` of the SDK, without rules."""

from __future__ import annotations

from cloudtrain.spec import (
    CollectionConfig,
    DebuggerHookConfig,
    Profiler,
    ProfilerConfig,
    TensorBoardOutputConfig,
)

__all__ = [
    "CollectionConfig",
    "DebuggerHookConfig",
    "Profiler",
    "ProfilerConfig",
    "TensorBoardOutputConfig",
]
