"""A client of the batch scheduler: ``client_program.py FOLDER`` submits a job, follows it, and stops another."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from batch_scheduler import BatchPlatform, ClusterRoot, Scheduler, Transport

from cloudtrain import Estimator


def main(folder: Path) -> None:
    scheduler, transport = Scheduler(["node-1", "node-2"]), Transport(folder / "jobs")
    platform = BatchPlatform(scheduler, ClusterRoot(transport, str(folder / "jobs")))
    estimator = Estimator(str(folder / "train.py"), platform=platform, instance_count=2)
    job = estimator.fit(wait=False, job_name="first")
    pending = str(job.status)
    scheduler.release()
    lines = list(job.follow())
    stopped = estimator.fit(wait=False, job_name="second")
    scheduler.release()
    while "begins" not in stopped.logs():
        time.sleep(0.05)
    stopped.stop()
    described = job.describe()
    print(
        json.dumps(
            {
                "system": sys.platform,
                "statuses": [pending, str(described.status), str(stopped.wait().status)],
                "lines": lines,
                "model": described.model_data,
                "jobs": [found.name for found in platform.list()],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
