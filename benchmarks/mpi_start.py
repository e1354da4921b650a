"""A trivial mpirun job on two linked hosts with two ranks each, against SageMaker's training toolkit.

    python benchmarks/mpi_start.py [--runs 3]

Measures wall-clock seconds until both hosts have succeeded. The script prints its rank and sleeps for two seconds: the
toolkit polls once a second for the daemon of mpirun, and would wait for 20 minutes if it never saw it. The hosts are
network namespaces of this machine (which require root), each with its own process namespace. The runtime or the toolkit
is process 1 of both, with the same Open MPI 4. cloudtrain is also timed on the local platform: the whole command, whose
two hosts share the machine. The contestants take turns. Prints rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import _peers
import _sagemaker_hosts
from _common import PEERS, header, in_turns, row
from host_network import Machine, Network, NetworkError
from hosts_job import LAUNCHES, HostsJob

SCRIPT = 'import os, time; print("rank", os.environ["OMPI_COMM_WORLD_RANK"], flush=True); time.sleep(2)\n'
RANKS = 4
LIMIT_SECONDS = 300
SUBMIT = "cloudtrain submit train.py --mpirun --instance-count 2 --processes-per-host 2"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    ours = {"the runtime on two linked hosts": runtime, f"`{SUBMIT}`": submit}
    turns: dict[str, Callable[[], float]] = {
        what: partial(in_scratch, contestant)
        for what, contestant in {**ours, _peers.SAGEMAKER_TRAINING: toolkit}.items()
    }
    try:
        seconds = in_turns(turns, runs)
    except NetworkError as error:
        sys.exit(f"cannot create linked hosts: {error}")
    print(header())
    for what in ours:
        print(row(what, seconds[what], _peers.SAGEMAKER_TRAINING, seconds[_peers.SAGEMAKER_TRAINING]))


def in_scratch(contestant: Callable[[Path], tuple[float, str]]) -> float:
    """Seconds of a run in a new folder. Raises RuntimeError if a rank did not print its line."""
    with tempfile.TemporaryDirectory(dir=PEERS) as scratch:  # the toolkit's hosts have their own /tmp
        took, output = contestant(Path(scratch))
    missing = [rank for rank in range(RANKS) if f"rank {rank}\n" not in output]
    if missing:
        raise RuntimeError(f"ranks {missing} have not run\n{output}")
    return took


def runtime(folder: Path) -> tuple[float, str]:
    with Network(2, folder) as network:
        job = HostsJob(network.machines, folder, SCRIPT, LAUNCHES["mpirun-4"])
        try:
            codes = job.wait(LIMIT_SECONDS)
            took = job.seconds
        finally:
            job.kill()
        return ended(took, codes, job.output())


def toolkit(folder: Path) -> tuple[float, str]:
    _sagemaker_hosts.prepare(folder)
    with Network(2, folder) as network:
        machines: list[Machine] = network.machines
        start = time.monotonic()
        programs = [_sagemaker_hosts.start(machine, machines, folder, SCRIPT) for machine in machines]
        try:
            codes = [program.wait(LIMIT_SECONDS) for program in programs]
            took = time.monotonic() - start
        finally:
            for program in programs:
                program.kill()
    return ended(took, codes, "".join((folder / m.name / "log.txt").read_text() for m in machines))


def submit(folder: Path) -> tuple[float, str]:
    (folder / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(_peers.cloudtrain().parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "CLOUDTRAIN_HOME": str(folder / "state")}
    start = time.monotonic()
    done = subprocess.run(
        shlex.split(SUBMIT), cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return ended(time.monotonic() - start, [done.returncode], done.stdout)


def ended(took: float, codes: list[int], output: str) -> tuple[float, str]:
    """Raises RuntimeError if a program failed."""
    if any(codes):
        raise RuntimeError(f"exit codes {codes}\n{output}")
    return took, output


if __name__ == "__main__":
    main()
