"""Queues of AWS Batch for training jobs, with service jobs whose lives a test controls."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from scripted_job import ACCOUNT, REGION, ScriptedJob
from service import Parameters, SageMakerService, ServiceError

RETURNED = {
    "retryStrategy",
    "schedulingPriority",
    "serviceRequestPayload",
    "serviceJobType",
    "shareIdentifier",
    "quotaShareName",
    "preemptionConfiguration",
    "tags",
    "timeoutConfig",
}
"""The fields of the request that DescribeServiceJob returns."""


@dataclass
class ServiceJob:
    """One job of a queue. Its methods are the events of its life."""

    service: SageMakerService
    request: Parameters
    number: int
    queue: str
    status: str = "SUBMITTED"
    reason: str | None = None
    is_terminated: bool = False
    attempts: list[dict[str, Any]] = field(default_factory=list)
    preempted: list[dict[str, Any]] = field(default_factory=list)
    created_at: float = field(default_factory=time.time)
    stopped_at: float | None = None

    @property
    def arn(self) -> str:
        return f"arn:aws:batch:{REGION}:{ACCOUNT}:service-job/{self.number:08}"

    @property
    def training_job(self) -> ScriptedJob:
        """The training job of the latest attempt."""
        return self.service.jobs[self.attempts[-1]["serviceResourceId"]["value"].rpartition("/")[2]]

    def wait(self, reason: str | None = None) -> None:
        """It waits in the queue, again after an attempt that ended."""
        self.status, self.reason = "RUNNABLE", reason

    def start(self, status: str = "RUNNING") -> ScriptedJob:
        """It is its turn: Batch makes a training job, and chooses its name."""
        payload = json.loads(self.request["serviceRequestPayload"])
        name = f"AWSBatch{payload['TrainingJobName']}{self.number}x{len(self.attempts) + 1}"
        self.service._CreateTrainingJob({**payload, "TrainingJobName": name})
        job = self.service.jobs[name]
        resource = {"name": "TrainingJobArn", "value": job.arn}
        self.attempts.append({"serviceResourceId": resource, "startedAt": int(1000 * time.time())})
        self.status, self.reason = status, None
        if status == "RUNNING":
            job.enter("Training")
        return job

    def preempt(self) -> None:
        """Another job of the queue takes its instances; it is queued again."""
        job = self.training_job
        job.stopping.set()
        job.stopped()
        self.preempted.append(self.attempts[-1])
        self.wait("Preempted by a job with a higher priority")

    def end(self, status: str, reason: str | None = None) -> None:
        self.status, self.reason, self.stopped_at = status, reason, time.time()

    def describe(self) -> Parameters:
        """The answer of DescribeServiceJob."""
        summary = self.preempted and {
            "preemptionSummary": {
                "preemptedAttemptCount": len(self.preempted),
                "recentPreemptedAttempts": self.preempted,
            }
        }
        return {
            **{name: value for name, value in self.request.items() if name in RETURNED},
            **self.summary(),
            "startedAt": self.attempts[0]["startedAt"] if self.attempts else 0,
            "attempts": self.attempts[:-1],
            "jobQueue": self.queue,
            **(summary or {}),
        }

    def summary(self) -> Parameters:
        """The job as one row of ListServiceJobs."""
        found = {
            "jobArn": self.arn,
            "jobId": f"{self.number:08}",
            "jobName": self.request["jobName"],
            "serviceJobType": "SAGEMAKER_TRAINING",
            "createdAt": int(1000 * self.created_at),
            "status": self.status,
            "statusReason": self.reason,
            "isTerminated": self.is_terminated or None,
            "stoppedAt": int(1000 * self.stopped_at) if self.stopped_at else None,
            "latestAttempt": {"serviceResourceId": self.attempts[-1]["serviceResourceId"]}
            if self.attempts
            else None,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class ScriptedQueues:
    """The queues of an account, added to the operations of a service."""

    service: SageMakerService
    queues: dict[str, Parameters] = field(default_factory=dict)
    jobs: list[ServiceJob] = field(default_factory=list)
    page: int = 2
    """The number of jobs on a page."""
    tokens: set[str] = field(default_factory=set)

    def install(self) -> ScriptedQueues:
        for operation in (
            "submitservicejob",
            "describeservicejob",
            "listservicejobs",
            "terminateservicejob",
            "getjobqueuesnapshot",
            "describejobqueues",
        ):
            setattr(self.service, f"_{operation}", getattr(self, operation))
        return self

    def add(self, name: str, **fields: Any) -> str:
        """One more queue; returns its ARN."""
        arn = f"arn:aws:batch:{REGION}:{ACCOUNT}:job-queue/{name}"
        self.queues[name] = {
            "jobQueueName": name,
            "jobQueueArn": arn,
            "state": "ENABLED",
            "status": "VALID",
            "priority": 1,
            "computeEnvironmentOrder": [],
            "jobQueueType": "SAGEMAKER_TRAINING",
            **fields,
        }
        return arn

    def _queue(self, name: str) -> Parameters:
        for queue in self.queues.values():
            if name in (queue["jobQueueName"], queue["jobQueueArn"]):
                return queue
        raise ServiceError("ClientException", f"JobQueue {name} not found.")

    def _job(self, given: Parameters) -> ServiceJob:
        for job in self.jobs:
            if given["jobId"] in (job.arn, f"{job.number:08}"):
                return job
        raise ServiceError("ClientException", f"Service job {given['jobId']} not found.")

    def submitservicejob(self, given: Parameters) -> Parameters:
        queue = self._queue(given["jobQueue"])
        if queue["state"] != "ENABLED":
            raise ServiceError("ClientException", f"JobQueue {queue['jobQueueName']} is in DISABLED state.")
        if queue.get("schedulingPolicyArn") and not given.get("shareIdentifier"):
            raise ServiceError("ClientException", "shareIdentifier must be specified for a fair share queue.")
        if given["clientToken"] in self.tokens:
            raise ServiceError("ClientException", "A request with this clientToken was already accepted.")
        self.tokens.add(given["clientToken"])
        job = ServiceJob(self.service, given, len(self.jobs) + 1, queue["jobQueueArn"])
        self.jobs.append(job)
        return {"jobArn": job.arn, "jobName": given["jobName"], "jobId": f"{job.number:08}"}

    def describeservicejob(self, given: Parameters) -> Parameters:
        return self._job(given).describe()

    def listservicejobs(self, given: Parameters) -> Parameters:
        arn = self._queue(given["jobQueue"])["jobQueueArn"]
        jobs = [job for job in reversed(self.jobs) if job.queue == arn]
        [chosen] = given["filters"]
        if chosen["name"] == "JOB_NAME":
            wanted = [value.lower() for value in chosen["values"]]
            jobs = [job for job in jobs if job.request["jobName"].lower() in wanted]
        start = int(given.get("nextToken", 0))
        more = {"nextToken": str(start + self.page)} if start + self.page < len(jobs) else {}
        return {"jobSummaryList": [job.summary() for job in jobs[start : start + self.page]], **more}

    def terminateservicejob(self, given: Parameters) -> Parameters:
        job = self._job(given)
        job.is_terminated = True
        if job.status in ("SUBMITTED", "PENDING", "RUNNABLE"):
            job.end("FAILED", given["reason"])
        else:
            job.training_job.enter("Stopping")
            job.training_job.stopping.set()
        return {}

    def getjobqueuesnapshot(self, given: Parameters) -> Parameters:
        arn = self._queue(given["jobQueue"])["jobQueueArn"]
        waiting = [job for job in self.jobs if job.queue == arn and job.status == "RUNNABLE"]
        return {"frontOfQueue": {"jobs": [{"jobArn": job.arn} for job in waiting]}}

    def describejobqueues(self, given: Parameters) -> Parameters:
        if given.get("jobQueues"):
            named = [name.rpartition("/")[2] for name in given["jobQueues"]]
            return {"jobQueues": [self.queues[name] for name in named if name in self.queues]}
        return {"jobQueues": list(self.queues.values())}
