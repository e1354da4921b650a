"""The training jobs of SageMaker, the streams of CloudWatch Logs, and who one is, over HTTP, as far as
cloudtrain uses them.

    with sagemaker_service() as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL", service.endpoint)   # and a region, and any credentials
        ...                                                        # something creates the job "x"
        job = service.jobs["x"]
        job.enter("Training")
        job.log("algo-1", "epoch 1")
        job.complete()

It speaks JSON 1.1, as AWS does: ``X-Amz-Target`` names the operation. Batch names it by the path. Answers have the
shapes of AWS's API reference; pages have the sizes of AWS's.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scripted_job import ACCOUNT, ScriptedJob

BATCH = "/v1/"
"""The start of the paths of AWS Batch: ``/v1/submitservicejob``."""
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
STREAMS_A_PAGE = 50
EVENTS_A_PAGE = 10_000
IDENTITY = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    f"<Account>{ACCOUNT}</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
)
"""The response of STS to GetCallerIdentity."""

Parameters = dict[str, Any]


@dataclass
class ServiceError(Exception):
    """An error response in the format of AWS."""

    code: str
    message: str = ""
    status: int = 400


class Lost(Exception):
    """The answer gets lost: the connection breaks after the operation was done."""


@dataclass
class SageMakerService:
    """All jobs and streams of one account and region."""

    endpoint: str = ""
    jobs: dict[str, ScriptedJob] = field(default_factory=dict)
    calls: list[tuple[str, Parameters]] = field(default_factory=list)
    """The operations that were called, with what was given to them, failed ones too."""
    called_at: list[float] = field(default_factory=list)
    """The times of ``calls``, in seconds."""
    on_create: Callable[[ScriptedJob], None] = lambda job: job.enter("Starting", "Starting the training job")
    """Called with each new job before the response is sent, to start the simulated instances."""
    offerings: list[Parameters] = field(default_factory=list)
    """The offerings that SearchTrainingPlanOfferings finds."""
    deletion_seconds: float = 0.1
    """How long a job can still be described after DeleteTrainingJob."""
    empty_pages: bool = False
    """Whether CloudWatch puts an empty page before each page of events, as it may."""
    faults: dict[str, list[Exception]] = field(default_factory=lambda: defaultdict(list))
    """The exceptions of the next calls of an operation: `ServiceError` replaces the operation, `Lost` follows it."""

    def fail(self, operation: str, *errors: Exception) -> None:
        """The next calls of ``operation`` fail, one error each."""
        self.faults[operation].extend(errors)

    def count(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.calls)

    def answer(self, operation: str, given: Parameters) -> Parameters:
        self.calls.append((operation, given))
        self.called_at.append(time.monotonic())
        fault = self.faults[operation].pop(0) if self.faults[operation] else None
        if isinstance(fault, ServiceError):
            raise fault
        handler = getattr(self, f"_{operation}", None)
        if handler is None:
            raise ServiceError("UnknownOperationException", operation)
        answer: Parameters = handler(given)
        if fault:
            raise fault
        return answer

    def _job(self, given: Parameters) -> ScriptedJob:
        try:
            return self.jobs[given["TrainingJobName"]]
        except KeyError:
            raise ServiceError("ValidationException", "Requested resource not found.") from None

    def _CreateTrainingJob(self, given: Parameters) -> Parameters:
        name = given["TrainingJobName"]
        if name in self.jobs:
            arn = self.jobs[name].arn
            raise ServiceError(
                "ResourceInUse", f"Training job names must be unique within an AWS account and region ({arn})"
            )
        job = self.jobs[name] = ScriptedJob(given)
        self.on_create(job)
        return {"TrainingJobArn": job.arn}

    def _DescribeTrainingJob(self, given: Parameters) -> Parameters:
        return self._job(given).describe()

    def _DeleteTrainingJob(self, given: Parameters) -> Parameters:
        job = self._job(given)
        if job.status in ("InProgress", "Stopping"):
            raise ServiceError("ValidationException", f"The request was rejected: job is {job.status}.")
        job.extra["TrainingJobStatus"] = "Deleting"
        threading.Timer(self.deletion_seconds, self.jobs.pop, [job.name]).start()
        return {}

    def _SearchTrainingPlanOfferings(self, given: Parameters) -> Parameters:
        return {"TrainingPlanOfferings": self.offerings}

    def _StopTrainingJob(self, given: Parameters) -> Parameters:
        job = self._job(given)
        if job.status != "InProgress":
            raise ServiceError("ValidationException", f"The request was rejected: job is {job.status}.")
        job.enter("Stopping", "Stopping the training job")
        job.stopping.set()
        return {}

    def _ListTrainingJobs(self, given: Parameters) -> Parameters:
        jobs = sorted(
            self.jobs.values(), key=lambda job: job.created_at, reverse=given.get("SortOrder") != "Ascending"
        )
        start, size = int(given.get("NextToken", 0)), given.get("MaxResults", 10)
        more = {"NextToken": str(start + size)} if start + size < len(jobs) else {}
        return {"TrainingJobSummaries": [job.summary() for job in jobs[start : start + size]], **more}

    def _describejobqueues(self, given: Parameters) -> Parameters:
        """The queues of AWS Batch: an account has none, unless a test installs some."""
        return {"jobQueues": []}

    def _streams(self, prefix: str) -> dict[str, Any]:
        jobs = list(self.jobs.values())
        found = {
            name: stream
            for job in jobs
            for name, stream in list(job.streams.items())
            if name.startswith(prefix)
        }
        if not any(job.streams for job in jobs):
            raise ServiceError("ResourceNotFoundException", "The specified log group does not exist.")
        return found

    def _DescribeLogStreams(self, given: Parameters) -> Parameters:
        names = sorted(self._streams(given.get("logStreamNamePrefix", "")))
        start, size = int(given.get("nextToken", 0)), min(given.get("limit", STREAMS_A_PAGE), STREAMS_A_PAGE)
        more = {"nextToken": str(start + size)} if start + size < len(names) else {}
        return {"logStreams": [{"logStreamName": name} for name in names[start : start + size]], **more}

    def _GetLogEvents(self, given: Parameters) -> Parameters:
        stream = self._streams(given["logStreamName"]).get(given["logStreamName"])
        if stream is None:
            raise ServiceError("ResourceNotFoundException", "The specified log stream does not exist.")
        size = min(given.get("limit", EVENTS_A_PAGE), EVENTS_A_PAGE)
        token = given.get("nextToken")
        if token is None:
            start = 0 if given.get("startFromHead") else max(0, len(stream.events) - size)
        else:
            start = int(token.rstrip("e").partition("/")[2])
        if self.empty_pages and not (token or "").endswith("e"):
            return {"events": [], "nextForwardToken": f"f/{start}e", "nextBackwardToken": f"b/{start}"}
        since = given.get("startTime", 0)
        while start < len(stream.events) and stream.events[start][0] < since:
            start += 1
        events = stream.events[start : start + size]
        end = start + len(events)
        # at the end the token is the one that was given
        after = token if token and not events else f"f/{end}"
        return {
            "events": [
                {"timestamp": stamp, "ingestionTime": ingested, "message": message}
                for stamp, ingested, message in events
            ],
            "nextForwardToken": after,
            "nextBackwardToken": f"b/{start}",
        }


@contextmanager
def sagemaker_service() -> Iterator[SageMakerService]:
    """The service on a free port of loopback."""
    service = SageMakerService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path.startswith(BATCH):
                operation = self.path.removeprefix(BATCH)
            elif "X-Amz-Target" in self.headers:
                operation = self.headers["X-Amz-Target"].partition(".")[2]
            else:  # STS speaks another protocol
                service.calls.append(("GetCallerIdentity", {}))
                service.called_at.append(time.monotonic())
                self._send(200, IDENTITY.encode(), "text/xml")
                return
            try:
                status, answer = 200, service.answer(operation, json.loads(body))
            except ServiceError as error:
                status, answer = error.status, {"__type": error.code, "message": error.message}
            except Lost:
                self.close_connection = True
                return
            self._send(status, json.dumps(answer).encode(), "application/x-amz-json-1.1")

        def _send(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        service.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
