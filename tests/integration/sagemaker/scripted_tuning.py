"""A tuning job whose training jobs a test controls, with SageMaker's responses about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from service import Parameters, SageMakerService, ServiceError

ENDED = {"Completed": "Completed", "Failed": "NonRetryableError", "Stopped": "Stopped"}
"""The states that end a training job, and their names among the counters."""


@dataclass
class ScriptedTuning:
    """The tuning jobs of an account, added to the operations of a service."""

    requests: dict[str, Parameters] = field(default_factory=dict)
    status: str = "InProgress"
    failure: str | None = None
    trials: list[dict[str, Any]] = field(default_factory=list)
    page: int = 2
    """The number of training jobs on a page."""
    on_create: Callable[[], object] = lambda: None
    """Called when the tuning job is created, to start the simulated search."""

    def install(self, service: SageMakerService) -> None:
        for operation, method in {
            "CreateHyperParameterTuningJob": self.create,
            "DescribeHyperParameterTuningJob": self.describe,
            "StopHyperParameterTuningJob": self.stop,
            "ListTrainingJobsForHyperParameterTuningJob": self.list,
        }.items():
            setattr(service, f"_{operation}", method)

    def run(self, status: str, value: float | None = None, **tuned: str) -> None:
        """One more training job, that has ended."""
        name = f"{next(iter(self.requests))}-{len(self.trials) + 1:03}"
        metric = {"FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": value}}
        self.trials.append(
            {
                "TrainingJobName": name,
                "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}",
                "TrainingJobStatus": status,
                "CreationTime": time.time(),
                "TunedHyperParameters": tuned,
                **(metric if value is not None else {}),
            }
        )

    def _known(self, given: Parameters) -> Parameters:
        try:
            return self.requests[given["HyperParameterTuningJobName"]]
        except KeyError:
            raise ServiceError("ResourceNotFound", "Requested resource not found.") from None

    def create(self, given: Parameters) -> Parameters:
        name = given["HyperParameterTuningJobName"]
        if name in self.requests:
            raise ServiceError("ResourceInUse", f"{name} exists")
        self.requests[name] = given
        self.on_create()
        return {"HyperParameterTuningJobArn": self._arn(name)}

    def _arn(self, name: str) -> str:
        return f"arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/{name}"

    def describe(self, given: Parameters) -> Parameters:
        request = self._known(given)
        rated = [trial for trial in self.trials if "FinalHyperParameterTuningJobObjectiveMetric" in trial]
        best = min(
            rated,
            key=lambda trial: trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"],
            default=None,
        )
        counters = dict.fromkeys(("Completed", "InProgress", "NonRetryableError", "Stopped"), 0)
        for trial in self.trials:
            counters[ENDED[trial["TrainingJobStatus"]]] += 1
        return {
            **request,
            "HyperParameterTuningJobArn": self._arn(request["HyperParameterTuningJobName"]),
            "HyperParameterTuningJobStatus": self.status,
            "CreationTime": time.time(),
            "TrainingJobStatusCounters": counters,
            "ObjectiveStatusCounters": {"Succeeded": len(rated), "Pending": 0, "Failed": 0},
            **({"BestTrainingJob": best} if best else {}),
            **({"FailureReason": self.failure} if self.failure else {}),
        }

    def stop(self, given: Parameters) -> Parameters:
        self._known(given)
        if self.status != "InProgress":
            raise ServiceError("ValidationException", f"The request was rejected: job is {self.status}.")
        self.status = "Stopped"
        return {}

    def list(self, given: Parameters) -> Parameters:
        self._known(given)
        start = int(given.get("NextToken", 0))
        more = {"NextToken": str(start + self.page)} if start + self.page < len(self.trials) else {}
        return {"TrainingJobSummaries": self.trials[start : start + self.page], **more}
