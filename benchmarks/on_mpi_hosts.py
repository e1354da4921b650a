"""A trivial mpirun job on two linked hosts with two ranks each, against SageMaker's training toolkit.

    python benchmarks/on_mpi_hosts.py [--runs 3] [--quick] [--json]

Measures wall-clock seconds until both hosts have succeeded. The script prints its rank and sleeps for two seconds: the
toolkit polls once a second for the daemon of mpirun, and would wait for 20 minutes if it never saw it. The hosts are
network namespaces of this machine (which require root), each with its own process namespace. The runtime or the toolkit
is process 1 of both, with the same Open MPI 4. cloudtrain is also timed on the local platform: the whole command, whose
two hosts share the machine. The contestants take turns. The toolkit spends 30 of its seconds in a
`time.sleep` after the end of the script.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _common import OURS, PEERS, TEST_FOLDERS, Report, in_turns, run_parts
from _peers import SAGEMAKER_TRAINING, cloudtrain, peer

sys.path += TEST_FOLDERS

from host_network import Machine, Network, NetworkError, Program
from hosts_job import LAUNCHES, HostsJob

SCRIPT = 'import os, time; print("rank", os.environ["OMPI_COMM_WORLD_RANK"], flush=True); time.sleep(2)\n'
RANKS = 4
LIMIT_SECONDS = 300
SUBMIT = "cloudtrain submit train.py --mpirun --instance-count 2 --processes-per-host 2"


TOOLKIT_VALUES = {
    "sagemaker_program": "train.py",
    "sagemaker_mpi_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 2,
    "sagemaker_mpi_custom_mpi_options": "",
}

# The content of an image. Each host has its own mounts, because a file that the toolkit leaves in /tmp would affect the
# next run.
TOOLKIT_HOST = """
mount -t tmpfs none /tmp
mount --bind {folder}/ssh /etc/ssh
mount --bind {folder}/environment /etc/environment
mount -t tmpfs none /run
mkdir /run/sshd
exec {python} -m sagemaker_training.cli.train
"""


def start(report: Report, given: argparse.Namespace) -> None:
    contestants: dict[str, Callable[[Path], tuple[float, str]]] = {
        OURS: runtime,
        "cloudtrain submit, on this machine": partial(submit, python=cloudtrain("torch")),
    }
    with report.optional(SAGEMAKER_TRAINING):
        peer(SAGEMAKER_TRAINING)
        contestants[SAGEMAKER_TRAINING] = toolkit
    turns = {who: partial(in_scratch, contestant) for who, contestant in contestants.items()}
    try:
        report.add_all("a trivial mpirun job on two linked hosts", in_turns(turns, given.runs))
    except NetworkError as error:
        sys.exit(f"cannot create linked hosts: {error}")


def in_scratch(contestant: Callable[[Path], tuple[float, str]]) -> float:
    """The seconds of a run in a new folder. Raises RuntimeError if a rank did not print its line."""
    PEERS.mkdir(parents=True, exist_ok=True)
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
    prepare_toolkit(folder)
    with Network(2, folder) as network:
        machines: list[Machine] = network.machines
        start = time.monotonic()
        programs = [start_toolkit(machine, machines, folder, SCRIPT) for machine in machines]
        try:
            codes = [program.wait(LIMIT_SECONDS) for program in programs]
            took = time.monotonic() - start
        finally:
            for program in programs:
                program.kill()
    return ended(took, codes, "".join((folder / m.name / "log.txt").read_text() for m in machines))


def submit(folder: Path, python: Path) -> tuple[float, str]:
    (folder / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "CLOUDTRAIN_HOME": str(folder / "state")}
    start = time.monotonic()
    done = subprocess.run(
        shlex.split(SUBMIT), cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return ended(time.monotonic() - start, [done.returncode], done.stdout)


def ended(took: float, codes: list[int], output: str) -> tuple[float, str]:
    """The time and the output of a run. Raises RuntimeError if a program failed."""
    if any(codes):
        raise RuntimeError(f"exit codes {codes}\n{output}")
    return took, output


def prepare_toolkit(folder: Path) -> None:
    """Create the key that all hosts share, and the configuration of ssh and sshd."""
    (folder / "ssh").mkdir()
    (folder / "home" / ".ssh").mkdir(parents=True)
    key = folder / "home" / ".ssh" / "id_rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(key)], check=True)
    (folder / "ssh" / "ssh_config").write_text(
        f"StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nIdentityFile {key}\n"
    )
    (folder / "ssh" / "sshd_config").write_text(
        f"HostKey {key}\nAuthorizedKeysFile {key}.pub\nPermitRootLogin yes\nStrictModes no\nUsePAM no\n"
    )


def start_toolkit(machine: Machine, machines: list[Machine], folder: Path, script: str) -> Program:
    """Start the toolkit as process 1 of ``machine``, with a ``folder`` that `prepare_toolkit` has filled."""
    base = folder / machine.name
    code, config = base / "code", base / "input" / "config"
    code.mkdir(parents=True)
    config.mkdir(parents=True)
    (folder / "environment").touch()
    (code / "train.py").write_text(script)
    values = {"sagemaker_submit_directory": str(code), **TOOLKIT_VALUES}
    documents = {
        "hyperparameters": {name: json.dumps(value) for name, value in values.items()},
        "resourceconfig": {
            "current_host": machine.name,
            "hosts": [machine.name for machine in machines],
            "network_interface_name": "eth0",
        },
        "inputdataconfig": {},
    }
    for name, document in documents.items():
        (config / f"{name}.json").write_text(json.dumps(document))
    python = peer(SAGEMAKER_TRAINING)
    command = TOOLKIT_HOST.format(folder=shlex.quote(str(folder)), python=shlex.quote(str(python)))
    env = {
        "PATH": f"{python.parent}:{os.defpath}:/usr/sbin",
        "HOME": str(folder / "home"),
        "SAGEMAKER_BASE_DIR": str(base),
        "LD_LIBRARY_PATH": "",
    }
    with (base / "log.txt").open("wb") as output:
        return machine.start(["sh", "-ec", command], cwd=base, env=env, output=output)


if __name__ == "__main__":
    run_parts(__doc__, {"start": start}, runs=3)
