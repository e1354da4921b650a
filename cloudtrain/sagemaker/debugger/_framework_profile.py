"""The configuration of Debugger's framework profiling, as in `sagemaker.debugger` of the SDK.

AWS's images support it up to PyTorch 1.13 and TensorFlow 2.10.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from cloudtrain.errors import InvalidJob


class PythonProfiler(Enum):
    """The profiler of Python code."""

    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class cProfileTimer(Enum):  # the SDK's name
    """The clock of cProfile."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


class _Profiling:
    """A range of steps, or of seconds from a time since the epoch; by default `DEFAULT`."""

    DEFAULT: ClassVar[tuple[int, int]]
    """The first step and the number of steps."""

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
        **more: Any,
    ) -> None:
        """Raises InvalidJob if both steps and times are given."""
        times = {"StartTimeInSecSinceEpoch": start_unix_time, "Duration": duration}
        steps = {"StartStep": start_step, "NumSteps": num_steps}
        if profile_default_steps or {*times.values(), *steps.values()} == {None}:
            steps = dict(zip(steps, self.DEFAULT, strict=True))
        has_steps = {*steps.values()} != {None}
        if has_steps and {*times.values()} != {None}:
            raise InvalidJob(
                f"{type(self).__name__}: steps and times exclude each other",
                hint="Set start_step and num_steps, or start_unix_time and duration.",
            )
        if has_steps:
            steps["StartStep"] = steps["StartStep"] or 0
            steps["NumSteps"] = steps["NumSteps"] or (1 if start_step is not None else None)
        self.values = {**(steps if has_steps else times), **more}

    def to_json_string(self) -> str:
        """The configuration in the format that the profiler reads."""
        pairs = {name: value for name, value in self.values.items() if value is not None}
        texts = (
            f'"{name}": ' + (f'"{one}"' if isinstance(one, str) else str(one)) for name, one in pairs.items()
        )
        return "{" + "".join(f"{text}, " for text in texts) + "}"


class DetailedProfilingConfig(_Profiling):
    """Profiles the operators of the framework."""

    DEFAULT = 5, 1


class DataloaderProfilingConfig(_Profiling):
    """Profiles the processes that load data; ``metrics_regex`` selects their metrics."""

    DEFAULT = 7, 1

    def __init__(self, *steps: Any, metrics_regex: str = ".*", **named: Any) -> None:
        super().__init__(*steps, MetricsRegex=metrics_regex, **named)


class PythonProfilingConfig(_Profiling):
    """Profiles Python functions."""

    DEFAULT = 9, 3

    def __init__(
        self,
        *steps: Any,
        python_profiler: PythonProfiler = PythonProfiler.CPROFILE,
        cprofile_timer: cProfileTimer = cProfileTimer.TOTAL_TIME,
        **named: Any,
    ) -> None:
        timer = cProfileTimer.DEFAULT if named.get("profile_default_steps") else cprofile_timer
        is_cprofile = python_profiler is PythonProfiler.CPROFILE
        super().__init__(
            *steps,
            ProfilerName=python_profiler.value,
            cProfileTimer=timer.value if is_cprofile else None,
            **named,
        )


class HorovodProfilingConfig(_Profiling):
    """Profiles Horovod's collectives."""

    DEFAULT = 13, 1


class SMDataParallelProfilingConfig(_Profiling):
    """Profiles the collectives of SageMaker's data parallel library."""

    DEFAULT = 15, 1


_KINDS = (
    DetailedProfilingConfig,
    DataloaderProfilingConfig,
    PythonProfilingConfig,
    HorovodProfilingConfig,
    SMDataParallelProfilingConfig,
)


class FrameworkProfile(dict[str, str]):
    """The ``framework_profile_params`` of a `ProfilerConfig`: the given configurations, or all with one range."""

    def __init__(
        self,
        local_path: str = "/opt/ml/output/profiler",
        file_max_size: int = 10 * 1024 * 1024,
        file_close_interval: float = 60,
        file_open_fail_threshold: int = 50,
        detailed_profiling_config: DetailedProfilingConfig | None = None,
        dataloader_profiling_config: DataloaderProfilingConfig | None = None,
        python_profiling_config: PythonProfilingConfig | None = None,
        horovod_profiling_config: HorovodProfilingConfig | None = None,
        smdataparallel_profiling_config: SMDataParallelProfilingConfig | None = None,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
    ) -> None:
        given = (
            detailed_profiling_config,
            dataloader_profiling_config,
            python_profiling_config,
            horovod_profiling_config,
            smdataparallel_profiling_config,
        )
        one_range = (start_step, num_steps, start_unix_time, duration)
        is_default = one_range == (None,) * 4
        parts = [one for one in given if one is not None] or [
            kind(*one_range, profile_default_steps=is_default) for kind in _KINDS
        ]
        super().__init__(
            LocalPath=local_path,
            RotateMaxFileSizeInBytes=str(file_max_size),
            RotateFileCloseIntervalInSeconds=str(file_close_interval),
            FileOpenFailThreshold=str(file_open_fail_threshold),
            **{type(one).__name__: one.to_json_string() for one in parts},
        )

    @property
    def profiling_parameters(self) -> dict[str, str]:
        return dict(self)
