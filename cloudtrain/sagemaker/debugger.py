"""As `sagemaker.debugger` of the SDK. Rules are placeholders: they run in separate jobs."""

from __future__ import annotations

from typing import Any

from cloudtrain._sdk.arguments import UNSUPPORTED
from cloudtrain.sagemaker._elsewhere import placeholder
from cloudtrain.spec import (
    CollectionConfig,
    DebuggerHookConfig,
    Profiler,
    ProfilerConfig,
    TensorBoardOutputConfig,
)

_RULES = ("FrameworkProfile", "ProfilerRule", "Rule", "get_rule_container_image_uri", "rule_configs")


def __getattr__(name: str) -> Any:
    if name not in _RULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return placeholder("debugger", name, UNSUPPORTED["rules"])


__all__ = [
    "CollectionConfig",
    "DebuggerHookConfig",
    "Profiler",
    "ProfilerConfig",
    "TensorBoardOutputConfig",
]
