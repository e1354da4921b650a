"""What two requests for the same job may differ in: names that are made, and where the SageMaker SDK is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

JOB = "CreateTrainingJob"
TUNING = "CreateHyperParameterTuningJob"

_MADE_NAMES = {
    r"s3://[^\"]*/sourcedir\.tar\.gz": "<source>",  # ours is found by its content, theirs by the job
    r"(DetailedProfilerProcessingJobConfig)-[a-z0-9-]*": r"\1-<name>",
    r"-\d{4}(-\d\d){5}-\d{3}\b": "-<time>",  # theirs
    r"-\d{8}-\d{6}-[a-z0-9]{4}\b": "-<time>",  # ours
}


STRICTER = {
    "distribution/tf_torch_distributed": "the SDK forgets a distribution of another framework",
    "distribution/mx_torch_distributed": "the SDK forgets a distribution of another framework",
    "distribution/unknown_distribution": "the SDK takes a distribution that nobody knows, and starts one rank a host",
    "option/spot_no_wait": "the SDK asks for spot instances without a max_wait, which SageMaker refuses",
    "tuning/wait_missing": "the SDK asks for spot instances without a max_wait, which SageMaker refuses",
}
"""Cases that the SDK sends and we refuse."""

WIDER = {
    "image/torch_newer": "a version that the SDK does not know",
    "image/tf_newer": "a version that the SDK does not know",
}
"""Cases that the SDK refuses and we send."""


def normalise(request: Mapping[str, Any]) -> dict[str, Any]:
    """``request`` without what is made anew for every job: the end of its name, the place of its source."""
    text = json.dumps(request)
    for pattern, standing in _MADE_NAMES.items():
        text = re.sub(pattern, standing, text)
    normal: dict[str, Any] = json.loads(text)
    return normal


def correct(sdk: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The SDK's request as it should be, and the names of the deviations that this took.

    Args:
        sdk: normalised, as ``ours`` is; of a training job.
    """
    sdk = dict(sdk)
    named = []
    hook = sdk.get("DebugHookConfig")
    if hook and hook.get("CollectionConfigurations") == [] and "DebugHookConfig" not in ours:
        del sdk["DebugHookConfig"]
        named.append("debugger hook unasked")
    if "ProfilerConfig" in sdk and "ProfilerConfig" not in ours:
        del sdk["ProfilerConfig"]
        named.append("profiler unasked")
    values = dict(sdk.get("HyperParameters", {}))
    options = "sagemaker_mpi_custom_mpi_options"
    if "sagemaker_mpi_enabled" in values and options not in values and options in ours["HyperParameters"]:
        values[options] = ours["HyperParameters"][options]
        named.append("MPI options lost")
    for name, text in values.items():
        value = ours.get("HyperParameters", {}).get(name, "")
        if text != value and _is_repr(text, value):
            values[name] = value
            named.append("dict as a Python repr")
        if text == json.dumps(value):
            values[name] = value
            named.append("encoded twice")
    if values:
        sdk["HyperParameters"] = values
    return sdk, named


def _is_repr(text: str, value: str) -> bool:
    """Whether ``text`` is Python for the dict or list that ``value`` has in JSON."""
    try:
        return text == repr(json.loads(value)) and value[:1] in "[{"
    except ValueError:
        return False


def differences(sdk: Any, ours: Any, path: str = "") -> list[str]:
    """A line for each field that is not the same."""
    if isinstance(sdk, dict) and isinstance(ours, dict):
        return [
            line
            for key in sorted({*sdk, *ours})
            for line in differences(
                sdk.get(key, "absent"), ours.get(key, "absent"), f"{path}.{key}".lstrip(".")
            )
        ]
    return [] if sdk == ours else [f"{path}: SDK {json.dumps(sdk)}, ours {json.dumps(ours)}"]
