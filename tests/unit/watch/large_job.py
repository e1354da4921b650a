"""The record of a running job with many hosts, written as the runtime writes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cloudtrain.contract import JobStatus
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.observe import EventLog
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.record import JobRecord

GB = 10**9
GPUS = 8


@contextmanager
def large_job(name: str, hosts: int = 128, minutes: int = 2) -> Iterator[JobFolder]:
    """A job of ``hosts`` hosts with 8 GPUs and 8 ranks each, which runs until the body ends.

    On ``host-42``, GPU 3 is hardly used. On ``host-77``, a rank was killed. ``host-100`` still fetches its data.
    """
    folder = JobFolder.of("local", name)
    folder.path.mkdir(parents=True)
    (folder.path / "request.json").write_text(json.dumps({"settings": {}, "channels": {}, "environment": {}}))
    began = time.time() - 60 * minutes
    record = JobRecord(
        JobStatus.RUNNING, submitted_at=began - 30, started_at=began, ended_at=None, exit_code=None
    )
    folder.write_record(record)
    add_job(IndexEntry(name, "local", began - 30))
    with open(folder.events, "ab") as file:
        file.writelines(_lines(folder, began, hosts, minutes))
    lock = folder.lock()
    assert lock is not None
    try:
        yield folder
    finally:
        os.close(lock)


def _lines(folder: JobFolder, began: float, hosts: int, minutes: int) -> Iterator[bytes]:
    from cloudtrain.observe.events import to_line

    def event(at: float, source: str, kind: str, **fields: Any) -> bytes:
        return to_line(EventLog(folder.events, source, clock=lambda: began + at).record(kind, **fields))

    names = [f"host-{number}" for number in range(1, hosts + 1)]
    yield event(0, "supervisor", "attempt", attempt=0)
    for number, name in enumerate(names):
        yield event(1, name, "phase", phase="fetch", state="began")
        if name == "host-100":
            yield event(2, name, "progress", phase="fetch", done=GB, total=4 * GB)
            continue
        yield event(20, name, "phase", phase="fetch", state="ended", seconds=19.0, bytes=4 * GB)
        yield event(21, name, "launch", ranks=[*range(GPUS * number, GPUS * (number + 1))])
        yield event(22, name, "phase", phase="train", state="began")
    for at in range(30, 60 * minutes, 10):
        for number, name in enumerate(names):
            if name == "host-100":
                continue
            use = [97.0 - (number + gpu) % 3 for gpu in range(GPUS)]
            use[3] = 12.0 if name == "host-42" else use[3]
            yield event(at, name, "sample", **_sample(use))
            fields = {"ranks": GPUS, "min": 1.0, "max": 3.0, "slowest": GPUS * number, "lag": 0.01}
            yield event(
                at, name, "metric", name="loss", value=100 / at, rank=GPUS * number, step=at, **fields
            )
    if "host-77" in names:
        yield event(60 * minutes - 1, "host-77", "rank-ended", rank=GPUS * 76 + 1, exit_code=-9)


def _sample(use: list[float]) -> dict[str, Any]:
    return {
        "seconds": 10.0,
        "cpu": 24.0,
        "cpus": 96,
        "memory": 200 * GB,
        "memory_limit": 1000 * GB,
        "gpu": [f"GPU-{number}" for number in range(GPUS)],
        "gpu_use": use,
        "gpu_memory": [60 * GB] * GPUS,
        "gpu_memory_total": [80 * GB] * GPUS,
        "gpu_power": [650.0] * GPUS,
        "gpu_temperature": [71.0] * GPUS,
    }
