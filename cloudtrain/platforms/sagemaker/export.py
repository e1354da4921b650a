"""Training jobs for services that start them: a step of SageMaker Pipelines, a state of AWS Step Functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloudtrain.contract.settings import PREFIX
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.spec import REDACTED

_JOB_NAME = f"{PREFIX}JOB_NAME"
"""The setting with the job's name. It is left out: the service names each run, and the container gets that name."""

_LONGEST_BASE = 26
"""In characters: a training job's name has up to 63, and ``-`` and the UUID of a run take 37 of them."""


def step_arguments(request: Request) -> dict[str, Any]:
    """The fields of CreateTrainingJob that do not depend on the run, without secrets.

    As in steps of the SageMaker SDK, the name and the experiment are left out: the pipeline is the experiment.

    Raises:
        InvalidJob: the job goes through a queue.
    """
    body = dict(request.body)
    if "jobQueue" in body:
        raise InvalidJob(
            "platform_options.job_queue: a pipeline or state machine starts training jobs itself, without a queue",
            hint="Remove it; or submit the job to the queue in a step of another kind, such as a Lambda function.",
        )
    del body["TrainingJobName"]
    experiment = body.pop("ExperimentConfig", {})
    if "TrialComponentDisplayName" in experiment:
        name = "TrialComponentDisplayName"
        body["ExperimentConfig"] = {name: experiment[name]}
    left_out = {*left_out_variables(request), _JOB_NAME}
    values = {"HyperParameters": {"sagemaker_job_name"}, "Environment": left_out}
    for field, names in values.items():
        kept = {name: value for name, value in body.get(field, {}).items() if name not in names}
        body.pop(field, None)
        if kept:
            body[field] = kept
    return body


def left_out_variables(request: Request) -> list[str]:
    """The names of the job's secrets, which are not exported."""
    environment: Mapping[str, Any] = request.body.get("Environment", {})
    hidden = {name for name, value in environment.items() if value == REDACTED}
    return sorted(hidden | set(request.secrets))


def pipeline_step(request: Request, _partition: str) -> dict[str, Any]:
    """The step of a pipeline's definition."""
    return {"Name": request.job_name, "Type": "Training", "Arguments": step_arguments(request)}


def step_functions_state(request: Request, partition: str) -> dict[str, Any]:
    """The state of a state machine, by its name. It waits until the training job has ended.

    Each run, and each retry of the state, gives the training job a new name.
    """
    arguments = step_arguments(request)
    path = next(_paths(arguments), None)
    if path:
        raise InvalidJob(
            f"{path}: Step Functions takes a name that ends with .$ for a path in its input",
            hint="Rename it.",
        )
    name = f"States.Format('{request.job_name[:_LONGEST_BASE].rstrip('-')}-{{}}', States.UUID())"
    state = {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::sagemaker:createTrainingJob.sync",
        "Parameters": {"TrainingJobName.$": name, **arguments},
        "End": True,
    }
    return {request.job_name: state}


EXPORTS: dict[str, Callable[[Request, str], dict[str, Any]]] = {
    "pipeline-step": pipeline_step,
    "step-functions": step_functions_state,
}
"""The formats, by the names of `SageMakerPlatform.export_formats`."""


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of fields that Step Functions would evaluate."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            if name.endswith(".$"):
                yield inner
            yield from _paths(item, inner)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _paths(item, f"{path}[{number}]")
