"""A job on linked hosts with SageMaker's training toolkit, and the sshd and key that its documentation requires."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import _peers
from _common import TEST_FOLDERS

sys.path += TEST_FOLDERS
from host_network import Machine, Program

VALUES = {
    "sagemaker_program": "train.py",
    "sagemaker_mpi_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 2,
    "sagemaker_mpi_custom_mpi_options": "",
}

# The content of an image. Every host has its own mounts: in /tmp, the toolkit leaves a file that affects the next run.
PREPARE = """
mount -t tmpfs none /tmp
mount --bind {folder}/ssh /etc/ssh
mount --bind {folder}/environment /etc/environment
mount -t tmpfs none /run
mkdir /run/sshd
exec {python} -m sagemaker_training.cli.train
"""


def prepare(folder: Path) -> None:
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


def start(machine: Machine, machines: list[Machine], folder: Path, script: str) -> Program:
    """Start the toolkit as process 1 of ``machine``; `prepare` has made ``folder``."""
    base = folder / machine.name
    code, config = base / "code", base / "input" / "config"
    code.mkdir(parents=True)
    config.mkdir(parents=True)
    (folder / "environment").touch()
    (code / "train.py").write_text(script)
    values = {"sagemaker_submit_directory": str(code), **VALUES}
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
    python = _peers.sagemaker_training()
    command = PREPARE.format(folder=shlex.quote(str(folder)), python=shlex.quote(str(python)))
    env = {
        "PATH": f"{python.parent}:{os.defpath}:/usr/sbin",
        "HOME": str(folder / "home"),
        "SAGEMAKER_BASE_DIR": str(base),
        "LD_LIBRARY_PATH": "",
    }
    with (base / "log.txt").open("wb") as output:
        return machine.start(["sh", "-ec", command], cwd=base, env=env, output=output)
