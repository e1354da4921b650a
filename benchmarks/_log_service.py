"""A simulated CloudWatch with the logs of a job on many hosts.

``_log_service.py HOSTS LINES SECONDS`` prints the endpoint of the service, which the tests also use.
"""

from __future__ import annotations

import sys
import time

from _common import TEST_FOLDERS

sys.path += TEST_FOLDERS

from scripted_job import ScriptedJob
from service import sagemaker_service
from training_requests import training_request

ROUNDS_A_SECOND = 10


def main(hosts: int, lines: int, seconds: float) -> None:
    """Print all lines immediately if ``seconds`` is 0, otherwise evenly over this time, from the first request on."""
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 30}
    with sagemaker_service() as service:
        service.answer("CreateTrainingJob", training_request("job", ResourceConfig=resources))
        job = service.jobs["job"]
        job.enter("Training")
        if not seconds:
            _print(job, hosts, range(lines))
            job.complete()
        print(service.endpoint, flush=True)
        while not service.count("DescribeTrainingJob"):
            time.sleep(0.01)
        if seconds:
            _print_evenly(job, hosts, lines, seconds)
            job.complete()
        time.sleep(3600)


def _print_evenly(job: ScriptedJob, hosts: int, lines: int, seconds: float) -> None:
    start, done = time.time(), 0
    while done < lines:
        time.sleep(1 / ROUNDS_A_SECOND)
        due = min(lines, int(lines * (time.time() - start) / seconds))
        _print(job, hosts, range(done, due))
        done = due


def _print(job: ScriptedJob, hosts: int, numbers: range) -> None:
    for number in numbers:
        for host in range(1, hosts + 1):
            now = int(1000 * time.time()) / 1000  # in milliseconds, like the service
            job.log(f"algo-{host}", f"line {number} printed at {now:.3f}", at=now)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
