"""Expected differences between the requests of the SageMaker SDK and of cloudtrain for the same job.

These are generated names, and mistakes of the SDK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

JOB = "CreateTrainingJob"
TUNING = "CreateHyperParameterTuningJob"

_GENERATED_NAMES = {
    r"s3://[^\"]*/sourcedir\.tar\.gz": "<source>",  # cloudtrain names it by its content, the SDK by the job
    r"(DetailedProfilerProcessingJobConfig)-[a-z0-9-]*": r"\1-<name>",
    r"-\d{4}(-\d\d){5}-\d{3}\b": "-<time>",  # the SDK
    r"-\d{8}-\d{6}-[a-z0-9]{4}\b": "-<time>",  # cloudtrain
}


STRICTER = {
    "distribution/tf_torch_distributed": "the SDK drops a distribution of another framework",
    "distribution/mx_torch_distributed": "the SDK drops a distribution of another framework",
    "distribution/torch_parameter_server": "PyTorch has none: every host would train alone",
    "distribution/unknown_distribution": "the SDK accepts an unknown distribution, and starts one rank per host",
    "sklearn/distribution": "the SDK drops a distribution that the toolkit of scikit-learn does not have",
    "xgboost/distribution": "the SDK drops a distribution that the toolkit of XGBoost does not have",
    "sklearn/graviton": "the SDK takes an image for inference on Graviton, which SageMaker does not train on",
    "option/spot_no_wait": "the SDK requests spot instances without a max_wait, which SageMaker refuses",
    "tuning/wait_missing": "the SDK requests spot instances without a max_wait, which SageMaker refuses",
}
"""Cases that the SDK submits and cloudtrain refuses."""

WIDER = {
    "input/local_file": "a channel that is a file of this machine, which cloudtrain uploads",
    "image/torch_newer": "a version that the SDK does not know",
    "image/tf_newer": "a version that the SDK does not know",
}
"""Cases that the SDK refuses and cloudtrain submits."""


def normalise(request: Mapping[str, Any]) -> dict[str, Any]:
    """``request`` without the values that differ for every job: the suffix of its name, and the URI of its source."""
    text = json.dumps(request)
    for pattern, placeholder in _GENERATED_NAMES.items():
        text = re.sub(pattern, placeholder, text)
    normal: dict[str, Any] = json.loads(text)
    collections = normal.get("DebugHookConfig", {}).get("CollectionConfigurations", [])
    collections.sort(key=json.dumps)  # the SDK keeps them in a set
    return normal


def correct(sdk: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The SDK's request with its mistakes corrected, and the names of the corrections.

    Args:
        sdk: the request for a training job, normalised like ``ours``.
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
    """Whether ``text`` is the ``repr`` of the dict or list that ``value`` encodes in JSON."""
    try:
        return text == repr(json.loads(value)) and value[:1] in "[{"
    except ValueError:
        return False


def differences(sdk: Any, ours: Any, path: str = "") -> list[str]:
    """One line per field that differs."""
    if isinstance(sdk, dict) and isinstance(ours, dict):
        return [
            line
            for key in sorted({*sdk, *ours})
            for line in differences(
                sdk.get(key, "absent"), ours.get(key, "absent"), f"{path}.{key}".lstrip(".")
            )
        ]
    return [] if sdk == ours else [f"{path}: SDK {json.dumps(sdk)}, cloudtrain {json.dumps(ours)}"]
