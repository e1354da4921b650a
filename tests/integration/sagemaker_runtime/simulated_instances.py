"""Plays SageMaker: takes the request of a training job and really runs it, each host in a container of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from host_network import Machine
from played_container import Container, Image, Place
from played_storage import CheckpointSync, download_channels, upload_outputs
from scripted_job import ScriptedJob

STOP_SECONDS = 120
"""Between SIGTERM and SIGKILL, as documented of StopTrainingJob and of spot interruptions."""
POLL_SECONDS = 0.05
SYNC_SECONDS = 0.3


@dataclass
class Instances:
    """The instances of one account: the machines, of which each job takes as many as it asks for."""

    machines: list[Machine]
    folder: Path
    image: Image = field(default_factory=Image)
    interrupt: threading.Event = field(default_factory=threading.Event)
    """Set by a test: the spot instances are taken away. They come back by themselves."""
    plays: list[threading.Thread] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    """Of the job that runs now, or ran last."""
    free: threading.Lock = field(default_factory=threading.Lock)
    """Held by the job that has the machines."""
    closed: bool = False

    def play(self, job: ScriptedJob) -> None:
        """Begin with a job that was just created; for `SageMakerService.on_create`."""
        job.enter("Starting", "Starting the training job")
        thread = threading.Thread(target=self._play, args=(job,), name=job.name)
        self.plays.append(thread)
        thread.start()

    def close(self) -> None:
        """Kill what still runs, and let nothing start any more."""
        self.closed = True
        for thread in self.plays:
            thread.join()

    def _play(self, job: ScriptedJob) -> None:
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
        """Run all containers once; False where spot instances were taken away."""
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
        taken_away = self._watch(job, sync)
        codes = [container.end() for container in self.containers]
        if sync:
            sync.upload()
        if taken_away:
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
        """Until all containers have ended; whether they were taken away."""
        kill_at = sync_at = None
        taken_away = False
        while running := [container for container in self.containers if container.program.running]:
            now = time.monotonic()
            if sync and (sync_at is None or now > sync_at):
                sync.upload()
                sync_at = now + SYNC_SECONDS
            # one that has failed ends them all
            failed = len(running) < len(self.containers) and any(
                container.program.wait(0) for container in self.containers if container not in running
            )
            if kill_at is None and (job.stopping.is_set() or self.interrupt.is_set() or failed):
                taken_away = self.interrupt.is_set()
                kill_at = now + STOP_SECONDS
                for container in running:
                    with contextlib.suppress(ProcessLookupError):
                        container.program.terminate()
            if self.closed or (kill_at is not None and now > kill_at):
                for container in running:
                    container.program.kill()
            time.sleep(POLL_SECONDS)
        return taken_away
