"""Following the logs of a SageMaker job on 200 hosts, 1,000 lines each: completeness, order, and lag.

    python benchmarks/sagemaker_logs.py [--hosts 200] [--lines 1000] [--seconds 60] [--patience 60]

CloudWatch is the scripted service of the tests, in a separate process, with pages of the same size as those of AWS.
There are two cases:

- All lines exist already and are read.
- The job prints its lines over ``--seconds`` while they are followed. The lag of a line is the time from its print to
  its arrival at the reader. CloudWatch answers 25 GetLogEvents a second per account and region. cloudtrain sends 20: a
  round of 200 busy streams takes 10 seconds.

The SageMaker SDK, version 2, follows the same job. It is stopped after ``--patience`` seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import _peers
from _aws import REGION, without_telemetry

SERVICE = Path(__file__).with_name("_log_service.py")

READ = """
import sys, time
from cloudtrain.platforms import get_platform
for line in get_platform("sagemaker").logs("job", follow=sys.argv[1] == "follow"):
    print(f"{time.time():.3f}", line)
"""

READ_BY_SDK_2 = """
from sagemaker.session import Session
Session().logs_for_job("job", wait=True)
"""

_LINE = re.compile(r"([\d.]+) \[(algo-\d+)\] line (\d+) printed at ([\d.]+)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--patience", type=float, default=60)
    options = parser.parse_args()
    what = f"{options.hosts} streams x {options.lines} lines"
    wanted = options.hosts * options.lines
    print("| what | who | lines | in order | took | lag of a line: median, 95 %, longest |")
    print("| --- | --- | --- | --- | --- | --- |")
    with service(options.hosts, options.lines, 0) as endpoint:
        lines, seconds = _read(endpoint, "once")
        print(f"| {what}, all there | cloudtrain | {_whole(lines, wanted)} | {seconds:.1f} s | |")
    with service(options.hosts, options.lines, options.seconds) as endpoint:
        lines, seconds = _read(endpoint, "follow")
        shown = f"{what} in {options.seconds:.0f} s, followed"
        print(f"| {shown} | cloudtrain | {_whole(lines, wanted)} | {seconds:.1f} s | {_lag(lines)} |")
    with service(options.hosts, options.lines, 0) as endpoint:
        printed, ended = _read_by_sdk_2(endpoint, options.patience)
        took = ended or f"not ended after {options.patience:.0f} s"
        print(f"| {what}, all there | {_peers.SAGEMAKER_2} | {printed} of {wanted} | | {took} | |")


@contextmanager
def service(hosts: int, lines: int, seconds: float) -> Iterator[str]:
    """The endpoint of a CloudWatch. The job prints its lines over ``seconds``, from the first request on."""
    command = [sys.executable, str(SERVICE), str(hosts), str(lines), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


Line = tuple[float, str, int, float]
"""The time it was read, its host, its number, and the time it was printed."""


def _read(endpoint: str, how: str) -> tuple[list[Line], float]:
    """The lines that cloudtrain prints, and the seconds of the whole process."""
    start = time.perf_counter()
    command = [str(_peers.cloudtrain(torch=False)), "-c", READ, how]
    done = subprocess.run(command, env=_environment(endpoint), stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - start
    found = [_LINE.fullmatch(line) for line in done.stdout.splitlines()]
    return [(float(line[1]), line[2], int(line[3]), float(line[4])) for line in found if line], seconds


def _read_by_sdk_2(endpoint: str, patience: float) -> tuple[int, str]:
    """The number of lines that the SDK prints, and how it ended; "" if it had to be stopped."""
    command = [str(_peers.sagemaker_2()), "-c", READ_BY_SDK_2]
    with tempfile.TemporaryDirectory() as scratch:
        env = {**_environment(endpoint), **without_telemetry(Path(scratch))}
        return _printed(command, env, patience)


def _printed(command: Sequence[str], env: Mapping[str, str], patience: float) -> tuple[int, str]:
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as sdk:
        try:
            said, _ = sdk.communicate(timeout=patience)
            ended = f"ended with status {sdk.returncode}"
        except subprocess.TimeoutExpired:
            sdk.kill()
            said, _ = sdk.communicate()
            ended = ""
    return said.count(" printed at "), ended


def _environment(endpoint: str) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **ours,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": REGION,
    }


def _whole(lines: list[Line], wanted: int) -> str:
    """The number of different lines, and of lines that follow one that was printed later."""
    different = len({(host, number) for _, host, number, _ in lines})
    printed = [line[3] for line in lines]
    late = sum(later < earlier for earlier, later in pairwise(printed))
    numbers: dict[str, list[int]] = {}
    for _, host, number, _ in lines:
        numbers.setdefault(host, []).append(number)
    in_order = all(found == sorted(found) for found in numbers.values())
    return f"{different} of {wanted} | {'every host' if in_order else 'NO'}; {late} steps back between hosts"


def _lag(lines: list[Line]) -> str:
    lags = [read - printed for read, _, _, printed in lines]
    return f"{median(lags):.1f} s, {quantiles(lags, n=20)[-1]:.1f} s, {max(lags):.1f} s"


if __name__ == "__main__":
    main()
