"""Simulates SageMaker: runs the request of a training job, each host in its own container."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from host_network import Machine
from scripted_job import ScriptedJob
from simulated_container import Container, Image, Place
from simulated_storage import CheckpointSync, download_channels, upload_outputs

STOP_SECONDS = 120
"""Seconds between SIGTERM and SIGKILL, as documented for StopTrainingJob and spot interruptions."""
POLL_SECONDS = 0.05
SYNC_SECONDS = 0.3


@dataclass
class Instances:
    """The instances of one account. One job uses them at a time, as many as it requests."""

    machines: list[Machine]
    folder: Path
    image: Image = field(default_factory=Image)
    interrupt: threading.Event = field(default_factory=threading.Event)
    """Set by a test to interrupt spot instances. They become available again by themselves."""
    threads: list[threading.Thread] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    """Those of the current or last job."""
    free: threading.Lock = field(default_factory=threading.Lock)
    """Held by the job that uses the machines."""
    closed: bool = False

    def run(self, job: ScriptedJob) -> None:
        """Start a new job; for `SageMakerService.on_create`."""
        job.enter("Starting", "Starting the training job")
        thread = threading.Thread(target=self._run, args=(job,), name=job.name)
        self.threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Kill running containers, and prevent new ones."""
        self.closed = True
        for thread in self.threads:
            thread.join()

    def _run(self, job: ScriptedJob) -> None:
        attempt = 1
        try:
            with self.free:
                while not self._attempt(job, attempt):
                    attempt += 1
                    self.interrupt.clear()
                    job.enter("Starting", "Launching requested ML instances")
        except LookupError as error:
            job.fail(f"ClientError: Data download failed:{error.args[0]}")
        except BaseException as error:
            job.fail(f"InternalServerError: {error!r}")
            raise

    def _attempt(self, job: ScriptedJob, attempt: int) -> bool:
        """Run all containers once; returns False if spot instances were interrupted."""
        request = job.request
        places = self._places(request["ResourceConfig"])
        folder = self.folder / job.name / str(attempt)
        self.containers = [Container(place, folder / place.name) for place in places]
        job.enter("Downloading", "Downloading input data")
        for number, container in enumerate(self.containers):
            container.lay_out(request, places)
            download_channels(request, container, number, len(places))
        sync = None
        if "CheckpointConfig" in request:
            sync = CheckpointSync(request["CheckpointConfig"], self.containers)
            sync.restore()
        job.enter("Training", "Training image download completed. Training in progress.")
        began = time.time()
        for container in self.containers:
            self._start(job, container, attempt)
        interrupted = self._watch(job, sync)
        codes = [container.end() for container in self.containers]
        if sync:
            sync.upload()
        if interrupted:
            job.enter("Interrupted", "Training job interrupted: spot capacity was taken back")
            return False
        failed = [number for number, code in enumerate(codes) if code]
        job.enter("Uploading", "Uploading generated training model")
        upload_outputs(request, self.containers, model=job.stopping.is_set() or not failed)
        seconds = max(1, round(time.time() - began))
        times = {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}
        if job.stopping.is_set():
            job.extra |= times
            job.stopped()
        elif failed:
            text = self.containers[failed[0]].failure()
            job.fail(f"AlgorithmError: {text}, exit code: {codes[failed[0]]}", **times)
        else:
            job.complete(**times)
        return True

    def _places(self, resources: Mapping[str, Any]) -> list[Place]:
        groups = resources.get("InstanceGroups") or [
            {
                "InstanceGroupName": "homogeneousCluster",
                "InstanceType": resources["InstanceType"],
                "InstanceCount": resources["InstanceCount"],
            }
        ]
        kinds = [group for group in groups for _ in range(group["InstanceCount"])]
        return [
            Place(machine.name, machine, kind["InstanceType"], kind["InstanceGroupName"])
            for machine, kind in zip(self.machines, kinds, strict=False)
        ]

    def _start(self, job: ScriptedJob, container: Container, attempt: int) -> None:
        name = container.place.name
        container.start(job.request, self.image, lambda line: job.log(name, line, stream=attempt))

    def _watch(self, job: ScriptedJob, sync: CheckpointSync | None) -> bool:
        """Wait until all containers have ended; returns whether they were interrupted."""
        kill_at = sync_at = None
        interrupted = False
        while running := [container for container in self.containers if container.program.running]:
            now = time.monotonic()
            if sync and (sync_at is None or now > sync_at):
                sync.upload()
                sync_at = now + SYNC_SECONDS
            # a failed container ends all others
            failed = len(running) < len(self.containers) and any(
                container.program.wait(0) for container in self.containers if container not in running
            )
            if kill_at is None and (job.stopping.is_set() or self.interrupt.is_set() or failed):
                interrupted = self.interrupt.is_set()
                kill_at = now + STOP_SECONDS
                for container in running:
                    with contextlib.suppress(ProcessLookupError):
                        container.program.terminate()
            if self.closed or (kill_at is not None and now > kill_at):
                for container in running:
                    container.program.kill()
            time.sleep(POLL_SECONDS)
        return interrupted
