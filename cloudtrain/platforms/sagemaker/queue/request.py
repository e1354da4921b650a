"""The SubmitServiceJob request, and the ``platform_options`` that set its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.spec import TrainingJob, convert

INTERNAL_ERROR = (
    "Received status from SageMaker:InternalServerError: We encountered an internal error. Please try again."
)
"""Batch's reason for an attempt that failed because of SageMaker itself."""

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

    ``serviceRequestPayload`` is the request itself here, so that it is readable; `submit_to_queue` encodes it as JSON.
    As in the SDK, the service job gets the tags. The SDK's time limit of an attempt is left out if ``max_run`` is
    longer: it would end the attempt early.

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
    """The CreateTrainingJob request in ``body``, which may be a SubmitServiceJob request."""
    payload: Mapping[str, Any] = body.get("serviceRequestPayload", body)
    return payload


_Attempts = Annotated[int, Meta(ge=1, le=10)]
_Retries = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[int, Meta(ge=1)]
_Text = Annotated[str, Meta(min_length=1)]
_WITHOUT_QUEUE = ("capacity_retries", "capacity_wait")


class EvaluateOnExit(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The action after an attempt that failed for a certain reason. The reason may end with ``*``."""

    action: Literal["RETRY", "EXIT"]
    onStatusReason: str | None = None


class RetryStrategy(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The number of attempts, and the failures after which there is another one."""

    attempts: _Attempts
    evaluateOnExit: list[EvaluateOnExit] = []


class PreemptionConfiguration(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a job is requeued after other jobs of its queue have preempted it."""

    preemptionRetriesBeforeTermination: _Retries


class TimeoutConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The time limit of one attempt."""

    attemptDurationSeconds: _Seconds


class QueueOptions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of a job on SageMaker: for a job without a queue, ``capacity_retries`` and ``capacity_wait``.

    ``job_queue`` is the name or ARN of a queue of AWS Batch. The other options have the names and values of
    SubmitServiceJob, in which mappings keep AWS's spelling. Where it takes a mapping with one number, the number itself
    is enough: ``retry_strategy: 3``, ``preemption_configuration: 2``, ``timeout_config: 3600``.
    """

    job_queue: _Text | None = None
    scheduling_priority: Annotated[int, Meta(ge=0, le=9999)] | None = None
    share_identifier: _Text | None = None
    quota_share_name: _Text | None = None
    retry_strategy: _Attempts | RetryStrategy | None = None
    preemption_configuration: _Retries | PreemptionConfiguration | None = None
    timeout_config: _Seconds | TimeoutConfig | None = None
    capacity_retries: Annotated[int, Meta(ge=0, le=1000)] | None = None
    capacity_wait: _Seconds | None = None

    @classmethod
    def of(cls, job: TrainingJob) -> QueueOptions:
        """Raises InvalidJob."""
        check_own_options("sagemaker", job.platform_options)
        options = convert(job.platform_options, cls, "platform_options")
        for name in job.platform_options:
            if options.job_queue is None and name not in ("job_queue", *_WITHOUT_QUEUE):
                raise InvalidJob(
                    f"platform_options.{name}: needs job_queue", hint="Name a queue of AWS Batch, too."
                )
            if options.job_queue is not None and name in _WITHOUT_QUEUE:
                raise InvalidJob(
                    f"platform_options.{name}: is for jobs without a queue",
                    hint="Remove it: a queue waits for capacity by itself.",
                )
        if options.capacity_wait is not None and not options.capacity_retries:
            raise InvalidJob(
                "platform_options.capacity_wait: needs capacity_retries",
                hint="Set how often the job may be submitted again: capacity_retries=10.",
            )
        if options.share_identifier and options.quota_share_name:
            raise InvalidJob(
                "platform_options.share_identifier and quota_share_name: a queue has only one kind of shares",
                hint="Remove one. Fair-share queues take share_identifier, the others quota_share_name.",
            )
        return options

    def fields(self) -> dict[str, Any]:
        """The fields of SubmitServiceJob that the options set."""
        retries, limit = self.retry_strategy, self.timeout_config
        preemptions = self.preemption_configuration
        found = {
            "schedulingPriority": self.scheduling_priority,
            "shareIdentifier": self.share_identifier,
            "quotaShareName": self.quota_share_name,
            "retryStrategy": RetryStrategy(retries) if isinstance(retries, int) else retries,
            "preemptionConfiguration": PreemptionConfiguration(preemptions)
            if isinstance(preemptions, int)
            else preemptions,
            "timeoutConfig": TimeoutConfig(limit) if isinstance(limit, int) else limit,
        }
        return {name: msgspec.to_builtins(value) for name, value in found.items() if value is not None}
