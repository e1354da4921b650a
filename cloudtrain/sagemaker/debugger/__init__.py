"""As `sagemaker.debugger` of the SDK: tensors to save, rules about them, and the profiler."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.sagemaker.debugger import rule_configs
from cloudtrain.sagemaker.debugger._framework_profile import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    cProfileTimer,
)
from cloudtrain.sagemaker.debugger._rules import ProfilerRule, Rule
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
    "DataloaderProfilingConfig",
    "DebuggerHookConfig",
    "DetailedProfilingConfig",
    "FrameworkProfile",
    "HorovodProfilingConfig",
    "Profiler",
    "ProfilerConfig",
    "ProfilerRule",
    "PythonProfiler",
    "PythonProfilingConfig",
    "Rule",
    "SMDataParallelProfilingConfig",
    "TensorBoardOutputConfig",
    "cProfileTimer",
    "rule_configs",
]
