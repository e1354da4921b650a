"""Rejects a request that SageMaker would reject, before it is sent, with the limits in botocore's service model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.validation import Path, Problem, problems
from cloudtrain.contract.settings import HIDDEN_VARIABLES
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.toolkit import CODE_CHANNEL
from cloudtrain.platforms.sagemaker.queue.request import training_request
from cloudtrain.platforms.sagemaker.request_fields import EXAMPLES, SET_BY, TUNER_ARGUMENTS
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL, SECRET_CHANNEL
from cloudtrain.spec import is_secret

TRAINING, TUNING = "CreateTrainingJob", "CreateHyperParameterTuningJob"

_OWN_CHANNELS = (RUNTIME_CHANNEL, SECRET_CHANNEL, CODE_CHANNEL)
_OWN_VALUES = {
    HIDDEN_VARIABLES: "secrets",
    "CLOUDTRAIN_CHECKPOINT_URI": "checkpoint_local_path",
    "sagemaker_program": "entry_point",
    "sagemaker_submit_directory": "code_location",
    "sagemaker_mpi_custom_mpi_options": "distribution",
    "mp_parameters": "distribution",
}
"""Variables and hyperparameters that cloudtrain sets, with the field that determines each."""

_ONLY_OF_THE_SDK = "TargetAttributeName"
"""A field of channels that cloudtrain sends because version 2 of the SDK does. botocore itself rejects it."""

_DEFINITION = re.compile(r"^TrainingJobDefinitions?\.(?=.)")
_UNQUOTED = ("environment", "hyperparameters", "container_", "hyperparameter_ranges", "secrets")
"""Prefixes of fields whose values may be secrets: errors do not quote them."""

_HINTS = {
    "environment": "Pass longer text in a file in source_dir, or in an input channel.",
    "secrets": "Keep longer secrets in AWS Secrets Manager, and read them in the script.",
    "hyperparameters": "Pass longer text in a file in source_dir, or in an input channel.",
    "inputs": "Combine the data of several channels under one prefix.",
    "metric_definitions": "Leave out the metrics that you need least.",
    "tags": "Tags have letters, digits, spaces and _ . : / = + - @ only. Keep them short.",
}


def check_request(
    body: Mapping[str, Any], aws: Aws, *, operation: str = TRAINING, model_channel: str | None = None
) -> None:
    """Raises InvalidJob for the first value in ``body`` that SageMaker does not accept.

    The message names the field of the job that sets the value. It quotes no value that may be a secret.

    Args:
        model_channel: the channel of the job's ``model_uri``.
    """
    model = aws.service_model("sagemaker")
    for problem in problems(model, operation, body):
        if problem.path[-1] != _ONLY_OF_THE_SDK:
            raise _error(problem, _field(problem.path, body, model_channel))


def check_training(request: Request, aws: Aws, *, model_channel: str | None = None) -> None:
    """Like `check_request`, for a request's training job with its secrets, even if a queue will start it."""
    body = dict(training_request(request.body))
    environment = {**body.get("Environment", {}), **request.secrets}
    if environment:
        body["Environment"] = environment
    if "tags" in request.body:  # only of a job in a queue: Batch limits them as SageMaker does
        body["Tags"] = [{"Key": key, "Value": value} for key, value in request.body["tags"].items()]
    check_request(body, aws, model_channel=model_channel)


def check_secrets(values: Mapping[str, str], aws: Aws) -> None:
    """Raises InvalidJob for a secret that is too long for a variable. The message does not contain ``values``."""
    body = {"Environment": dict(values)}
    for problem in problems(aws.service_model("sagemaker"), TRAINING, body):
        if problem.path[0] == "Environment":
            raise _error(problem, f"secrets.{problem.path[1]}")


def _error(problem: Problem, field: str) -> InvalidJob:
    quotes = not field.startswith(_UNQUOTED) and not is_secret(field, str(problem.value))
    return InvalidJob(
        f"{field}: {problem.describe(quotes=quotes)} ({_dotted(problem.path)})", hint=_hint(problem, field)
    )


def _hint(problem: Problem, field: str) -> str:
    last = re.sub(r"\[\d+\]", "", field).rpartition(".")[2]
    if problem.is_unknown:
        import botocore

        newer = f"If AWS has added it since botocore {botocore.__version__}: pip install --upgrade boto3"
        return f"{problem.hint} {newer}".strip()
    if last in EXAMPLES:
        return f"For example: {EXAMPLES[last]}"
    first = re.split(r"[.\[]", field)[0]
    return problem.hint or _HINTS.get(first, "Change it to what SageMaker accepts.")


def _dotted(path: Path) -> str:
    """``Tags[0].Key`` for ``("Tags", 0, "Key")``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.lstrip(".")


def _field(path: Path, body: Mapping[str, Any], model_channel: str | None) -> str:
    """The field of the job, or the argument of the tuner, that sets the value at ``path``."""
    channel, indexes = _channel(path, body), [part for part in path if isinstance(part, int)]
    if path[0] == "TrainingJobDefinitions":
        indexes = indexes[1:]
    if channel is not None and path[-1] == "S3Uri":
        if channel == model_channel:
            return "model_uri"
        if channel in _OWN_CHANNELS:
            return "code_location"
    names = [part for part in path if isinstance(part, str)]
    for end in range(len(names), 0, -1):
        known = _known(".".join(names[:end]))
        if known is None:
            continue
        rest = names[end:]
        if known in ("environment", "hyperparameters") and rest and rest[0] in _OWN_VALUES:
            return _OWN_VALUES[rest[0]]
        field = known.format(*indexes, channel=channel)
        is_item = isinstance(path[-1], int) and not field.endswith("]")
        return ".".join([field, *rest]) + (f"[{path[-1]}]" if is_item else "")
    return _dotted(path)


def _known(name: str) -> str | None:
    """The job's field, or the tuner's argument, that sets the field ``name`` of a request, a path without indexes."""
    name = _DEFINITION.sub("", name).replace("HyperParameterTuningResourceConfig", "ResourceConfig")
    return SET_BY.get(name) or TUNER_ARGUMENTS.get(name)


def _channel(path: Path, body: Mapping[str, Any]) -> str | None:
    """The name of the channel at ``path``."""
    value: Any = body
    for number, part in enumerate(path):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
        if isinstance(part, int) and path[number - 1] == "InputDataConfig":
            return str(value.get("ChannelName"))
    return None
