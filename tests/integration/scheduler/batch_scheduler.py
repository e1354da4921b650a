"""A batch scheduler, and a platform for it: what Slurm and its like ask of the seam below `SupervisedPlatform`.

Only the scheduler is a fake: the supervisor, the runtimes and the ranks that it starts are real processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import Request
from cloudtrain.platforms.checks import Check
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.request import base_body, new_request
from cloudtrain.platforms.supervised import JobFiles, JobRecord, SupervisedPlatform
from cloudtrain.spec import TrainingJob

BATCH_STEP = Path(__file__).with_name("batch_step.py")
NUMBER = "batch-number"
"""The file with the number that the scheduler has given to a job."""


@dataclass
class Queued:
    """A job as the scheduler knows it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    node_count: int
    state: str = "PENDING"
    process: subprocess.Popen[bytes] | None = None


@dataclass
class Scheduler:
    """Holds all jobs in its queue until `release` lets them start, on nodes that it chooses."""

    nodes: Sequence[str]
    queue: dict[int, Queued] = field(default_factory=dict)

    def submit(self, command: Sequence[str], environment: Mapping[str, str], node_count: int) -> int:
        if node_count > len(self.nodes):
            raise PlatformError(f"the scheduler has {len(self.nodes)} nodes, not {node_count}")
        number = len(self.queue) + 1
        self.queue[number] = Queued(command, environment, node_count)
        return number

    def release(self) -> None:
        for job in self.queue.values():
            if job.state == "PENDING":
                names = ",".join(self.nodes[: job.node_count])
                job.state = "RUNNING"
                job.process = subprocess.Popen(
                    job.command, env={**job.environment, "BATCH_NODES": names}, start_new_session=True
                )

    def state(self, number: int) -> str:
        job = self.queue[number]
        if job.state == "RUNNING" and job.process and job.process.poll() is not None:
            job.state = "COMPLETED"
        return job.state

    def signal(self, number: int, name: str) -> None:
        job = self.queue[number]
        if job.process:
            job.process.send_signal(signal.Signals[name])
        elif name == "SIGTERM":
            job.state = "CANCELLED"

    def take_nodes_away(self, number: int) -> None:
        """Kill the job immediately, as PreemptMode=CANCEL does without a grace period."""
        job = self.queue[number]
        assert job.process
        os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait()
        job.state = "PREEMPTED"


class Transport:
    """The only way to the cluster's file system, which this machine does not mount. Counts its messages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.messages = 0

    def read(self, path: str) -> bytes:
        self.messages += 1
        return (self._folder / path).read_bytes()

    def read_part(self, path: str, start: int) -> bytes:
        return self.read(path)[start : start + 100]

    def write(self, path: str, data: bytes) -> None:
        self.messages += 1
        temporary = self._folder / f"{path}.new"
        temporary.write_bytes(data)
        temporary.replace(self._folder / path)

    def list(self) -> list[str]:
        self.messages += 1
        found = (path.parent.name for path in self._folder.glob("*/state.json"))
        return [name for name in found if not name.startswith(".new-")]

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def rename_folder(self, name: str, new_name: str) -> None:
        (self._folder / name).rename(self._folder / new_name)

    def make_folder(self, name: str) -> None:
        (self._folder / name).mkdir(parents=True)

    def remove_folder(self, name: str) -> None:
        subprocess.run(["rm", "-rf", self._folder / name], check=True)


class ClusterRoot:
    """A `JobRoot` behind a transport."""

    def __init__(self, transport: Transport, path: str) -> None:
        self._transport = transport
        self.path = path
        """As the nodes see it."""

    @property
    def uri(self) -> str:
        return PurePosixPath(self.path).as_uri()

    def place(self, job_name: str) -> str:
        return f"cluster:{self.path}/{job_name}"

    def create(self, job_name: str) -> str:
        if self._transport.has(job_name):
            raise FileExistsError(job_name)
        draft = f".new-{job_name}-{os.urandom(4).hex()}"
        self._transport.make_folder(draft)
        return draft

    def publish(self, draft: str, job_name: str) -> None:
        self._transport.rename_folder(draft, job_name)

    def remove(self, name: str) -> None:
        self._transport.remove_folder(name)

    def names(self) -> Iterable[str]:
        return self._transport.list()

    def read(self, path: str) -> bytes:
        return self._transport.read(path)

    def read_part(self, path: str, start: int) -> bytes:
        return self._transport.read_part(path, start)

    def write(self, path: str, data: bytes) -> None:
        self._transport.write(path, data)


class BatchLauncher:
    """A `HostLauncher` that leaves the start to the scheduler."""

    def __init__(self, scheduler: Scheduler, root: ClusterRoot) -> None:
        self._scheduler = scheduler
        self._root = root

    def start(self, draft: JobFiles, request: Request) -> None:
        draft.write_record(JobRecord(JobStatus.PENDING, submitted_at=time.time()))
        job = draft.publish(request.job_name)
        try:
            self._queue(job, request)
        except PlatformError:
            self._root.remove(job.name)
            raise

    def _queue(self, job: JobFiles, request: Request) -> None:
        command = [sys.executable, str(BATCH_STEP), f"{self._root.path}/{job.name}"]
        environment = {**os.environ, **request.secrets}
        number = self._scheduler.submit(command, environment, request.body["host_count"])
        job.write(NUMBER, str(number).encode())

    def signal(self, job: JobFiles, name: str) -> None:
        self._scheduler.signal(int(job.read(NUMBER)), name)

    def is_alive(self, job: JobFiles) -> bool:
        return self.state(job) in ("PENDING", "RUNNING")

    def state(self, job: JobFiles) -> str:
        number = job.read(NUMBER)
        return self._scheduler.state(int(number)) if number else "PENDING"  # it is being submitted


class BatchPlatform(SupervisedPlatform):
    """Jobs that a scheduler starts."""

    name = "batch"

    def __init__(self, scheduler: Scheduler, root: ClusterRoot) -> None:
        self._batch = BatchLauncher(scheduler, root)
        super().__init__(root, self._batch)

    def render(self, job: TrainingJob) -> Request:
        body = {
            **base_body(job, master_port=0, max_preemptions=0),
            "hyperparameters": encoded_hyperparameters(job),
        }
        return new_request(self.name, job, body)

    def preflight(
        self, job: TrainingJob, request: Request | None, imports: Sequence[str]
    ) -> Mapping[str, Check]:
        return {}

    def lost(self, job: JobFiles) -> FailureReport:
        if self._batch.state(job) == "PREEMPTED":
            why = "the scheduler gave its nodes to another job"
            return FailureReport(
                FailureClass.PREEMPTED, why, exit_code=128 + signal.SIGTERM, time=time.time()
            )
        return super().lost(job)
