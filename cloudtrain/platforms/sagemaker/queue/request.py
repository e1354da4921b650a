"""The request SubmitServiceJob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.platforms.sagemaker.queue.options import INTERNAL_ERROR, QueueOptions
from cloudtrain.spec import TrainingJob

DEFAULT_RETRIES = {
    "attempts": 1,
    "evaluateOnExit": [
        {"action": "RETRY", "onStatusReason": INTERNAL_ERROR},
        {"action": "EXIT", "onStatusReason": "*"},
    ],
}
"""The retry strategy of the SageMaker SDK, version 3."""

DEFAULT_TIMEOUT = 86400
"""The limit of an attempt in seconds, as in the SageMaker SDK, version 3."""


def with_queue(body: Mapping[str, Any], job: TrainingJob) -> dict[str, Any]:
    """The SubmitServiceJob request with the CreateTrainingJob request ``body``; ``body`` itself without a queue.

    ``serviceRequestPayload`` is the request itself here, so that it can be read; `submit` encodes it as JSON. As in
    the SDK, the tags belong to the service job. A ``max_run`` longer than the SDK's limit of an attempt replaces that
    limit: the attempt would be ended early.

    Raises:
        InvalidJob: an option is unknown, or has a wrong value.
    """
    options = QueueOptions.of(job)
    if options.job_queue is None:
        return dict(body)
    payload = {name: value for name, value in body.items() if name != "Tags"}
    tags = {tag["Key"]: tag["Value"] for tag in body.get("Tags", ())}
    is_short = max(job.max_run or 0, job.max_wait or 0) <= DEFAULT_TIMEOUT
    return {
        "jobName": body["TrainingJobName"],
        "jobQueue": options.job_queue,
        "serviceJobType": "SAGEMAKER_TRAINING",
        "retryStrategy": DEFAULT_RETRIES,
        **({"timeoutConfig": {"attemptDurationSeconds": DEFAULT_TIMEOUT}} if is_short else {}),
        **options.fields(),
        **({"tags": tags} if tags else {}),
        "serviceRequestPayload": payload,
    }


def training_request(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The CreateTrainingJob request in ``body``, which may be that of a queue."""
    payload: Mapping[str, Any] = body.get("serviceRequestPayload", body)
    return payload
