"""Follows the logs of a job whose hosts print all the time, and counts what that asks of CloudWatch."""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from scripted_job import ScriptedJob
from service import SageMakerService

from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.logs import Pace, logs

_LINE = re.compile(r"\[(algo-\d+)\] line (\d+) at (\d+)")


@dataclass
class Followed:
    """The lines that a client saw, and the requests that it sent."""

    lines: list[tuple[str, int, int]]
    """Of each line, its host, its number on this host, and when it was printed, in milliseconds."""
    printed: int
    """The lines that each host has printed."""
    asked_at: list[float]
    """The times of all GetLogEvents, in seconds."""

    @property
    def most_in_a_second(self) -> int:
        """The largest number of requests within one second, wherever it starts."""
        return max(bisect_left(self.asked_at, at + 1) - index for index, at in enumerate(self.asked_at))

    @property
    def steps_back(self) -> int:
        """How often a line follows one that was printed later on any host."""
        return sum(later[2] < earlier[2] for earlier, later in pairwise(self.lines))

    def check_complete(self, hosts: int) -> None:
        """Every line of every host is there once, in order."""
        numbers: dict[str, list[int]] = {}
        for host, number, _ in self.lines:
            numbers.setdefault(host, []).append(number)
        assert numbers == {f"algo-{host + 1}": list(range(self.printed)) for host in range(hosts)}
        assert max(Counter(self.lines).values()) == 1


def follow_busy(
    platform: SageMakerPlatform, service: SageMakerService, job: ScriptedJob, hosts: int, seconds: float
) -> Followed:
    """Follow ``job`` at the usual pace, while each of its hosts prints two lines a second for ``seconds``."""
    job.request["ResourceConfig"] = {
        "InstanceType": "ml.m5.large",
        "InstanceCount": hosts,
        "VolumeSizeInGB": 30,
    }
    job.enter("Training")
    printed = 0

    def print_lines() -> None:
        nonlocal printed
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            for host in range(hosts):
                now = time.time()
                job.log(f"algo-{host + 1}", f"line {printed} at {int(1000 * now)}", at=now)
            printed += 1
            time.sleep(0.5)
        job.complete()

    printer = threading.Thread(target=print_lines)
    printer.start()
    found = [_LINE.fullmatch(line) for line in logs("a-job", platform.aws, follow=True, pace=Pace(settle=0))]
    printer.join()
    asked_at = [
        at
        for (operation, _), at in zip(service.calls, service.called_at, strict=True)
        if operation == "GetLogEvents"
    ]
    return Followed([(line[1], int(line[2]), int(line[3])) for line in found if line], printed, asked_at)
