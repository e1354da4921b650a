"""A training job whose states and log lines a test drives: the record that SageMaker would keep of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

ACCOUNT = "123456789012"
REGION = "us-east-1"

FINAL = {"Completed": "Completed", "Failed": "Failed", "Stopped": "Stopped", "MaxRuntimeExceeded": "Stopped"}
FINAL |= {"MaxWaitTimeExceeded": "Stopped"}
"""Secondary states that end a job, and the state that each ends it in."""

KEPT = {
    *(
        "AlgorithmSpecification",
        "CheckpointConfig",
        "DebugHookConfig",
        "EnableInterContainerTrafficEncryption",
    ),
    *("EnableManagedSpotTraining", "EnableNetworkIsolation", "Environment", "HyperParameters"),
    *("InfraCheckConfig", "InputDataConfig", "OutputDataConfig", "ProfilerConfig", "RemoteDebugConfig"),
    *(
        "ResourceConfig",
        "RetryStrategy",
        "RoleArn",
        "StoppingCondition",
        "TensorBoardOutputConfig",
        "VpcConfig",
    ),
}
"""The fields of the request that DescribeTrainingJob returns."""


@dataclass
class LogStream:
    """Events in the order in which they came in: (timestamp, ingestion time, message), in milliseconds."""

    events: list[tuple[int, int, str]] = field(default_factory=list)


@dataclass
class ScriptedJob:
    """One job. Its methods are the events of its life; all are safe to call from any thread."""

    request: dict[str, Any]
    transitions: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[str, LogStream] = field(default_factory=dict)
    created_at: float = field(default_factory=time.time)
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields of the answer of DescribeTrainingJob, which go before the others."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the job is to stop."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        return str(self.request["TrainingJobName"])

    @property
    def arn(self) -> str:
        return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{self.name}"

    @property
    def secondary_status(self) -> str:
        return str(self.transitions[-1]["Status"])

    @property
    def status(self) -> str:
        if self.secondary_status in FINAL:
            return FINAL[self.secondary_status]
        return "Stopping" if self.stopping.is_set() else "InProgress"

    def enter(self, status: str, message: str = "", *, at: float | None = None) -> None:
        """The next secondary state: ``Starting``, ``Downloading``, ``Training``, ``Interrupted``, ..."""
        with self.lock:
            now = time.time() if at is None else at
            if self.transitions:
                self.transitions[-1].setdefault("EndTime", now)
            self.transitions.append(
                {"Status": status, "StartTime": now, "StatusMessage": message or f"{status} the job"}
            )
            if status in FINAL:
                self.transitions[-1]["EndTime"] = now

    def log(self, host: str, *lines: str, at: float | None = None, stream: int = 1) -> None:
        """Lines that ``host`` prints. ``at`` is their time; ``stream`` counts the starts of the host."""
        now = time.time()
        stamp = int(1000 * (now if at is None else at))
        with self.lock:
            events = self.streams.setdefault(f"{self.name}/{host}-{1700000000 + stream}", LogStream()).events
            events.extend((stamp, int(1000 * now), line) for line in lines)

    def complete(self, **extra: Any) -> None:
        with self.lock:
            self.extra |= extra
            self.enter("Completed", "Training job completed")

    def fail(self, reason: str, **extra: Any) -> None:
        with self.lock:
            self.extra |= {"FailureReason": reason, **extra}
            self.enter("Failed", "Training job failed")

    def stopped(self) -> None:
        self.enter("Stopped", "Training job stopped")

    def describe(self) -> dict[str, Any]:
        """The answer of DescribeTrainingJob."""
        with self.lock:
            answer = {key: value for key, value in self.request.items() if key in KEPT}
            answer |= {
                "TrainingJobName": self.name,
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary_status,
                "CreationTime": self.created_at,
                "LastModifiedTime": self.transitions[-1]["StartTime"],
                "SecondaryStatusTransitions": [dict(transition) for transition in self.transitions],
                "ModelArtifacts": {"S3ModelArtifacts": self._model()},
            }
            training = [found["StartTime"] for found in self.transitions if found["Status"] == "Training"]
            if training:
                answer["TrainingStartTime"] = training[0]
            if self.status in FINAL.values():
                answer["TrainingEndTime"] = self.transitions[-1]["StartTime"]
            return answer | self.extra

    def summary(self) -> dict[str, Any]:
        """The job as one row of ListTrainingJobs."""
        keys = (
            "TrainingJobName TrainingJobArn CreationTime TrainingEndTime LastModifiedTime TrainingJobStatus"
        )
        answer = self.describe()
        return {key: answer[key] for key in [*keys.split(), "SecondaryStatus"] if key in answer}

    def _model(self) -> str:
        output = self.request["OutputDataConfig"]
        name = "model/" if output.get("CompressionType") == "NONE" else "model.tar.gz"
        return f"{output['S3OutputPath'].rstrip('/')}/{self.name}/output/{name}"
