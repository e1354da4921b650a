"""cloudtrain connects to nothing but what a job names: no telemetry, no look for a new version."""

from __future__ import annotations

import ipaddress
import re
import subprocess
from pathlib import Path

from command import CLOUDTRAIN

_CONNECT = re.compile(r'sa_family=AF_INET6?,.*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')
TRAIN = """
import os
import cloudtrain

cloudtrain.log(step=0, loss=1.0)
raise SystemExit(int(os.environ["RANK"]))
"""
"""Without collectives: PyTorch looks up the name of 127.0.0.1, on a name server too where /etc/hosts has none."""
COMMANDS = """
    cloudtrain --version
    cloudtrain examples jax
    cloudtrain submit train.py --name sent --processes-per-host 1 --instance-count 2
    cloudtrain list
    cloudtrain describe sent --json
    cloudtrain metrics sent
    cloudtrain top sent --json
    cloudtrain report sent --output sent.html
    cloudtrain doctor --platform local
    cloudtrain submit train.py --platform kubernetes --set image_uri=python:3.12 --instance-count 2 --dry-run
    cloudtrain submit train.py --platform slurm --dry-run
    cloudtrain clean --yes
"""


def test_no_process_connects_to_an_address_outside_of_this_machine(tmp_path: Path) -> None:
    """strace(1) writes the connections of each command, its supervisor and its ranks. A look for a name is one too."""
    (tmp_path / "train.py").write_text(TRAIN)
    reached, outputs = set(), {}
    for line in COMMANDS.split("\n")[1:-1]:
        command = line.split()
        calls = tmp_path / "calls"
        traced = [
            "strace",
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-e",
            "trace=connect,sendto",
            "-o",
            calls,
            CLOUDTRAIN,
            *command[1:],
        ]
        done = subprocess.run(traced, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        outputs[line.strip()] = done.stdout + done.stderr
        reached |= {(address, command[1]) for address in _CONNECT.findall(calls.read_text())}
    assert ("127.0.0.1", "submit") in reached  # the hosts of the job: the trace sees what it should
    assert {
        (address, command) for address, command in reached if not ipaddress.ip_address(address).is_loopback
    } == set()
    assert outputs["cloudtrain metrics sent"].splitlines()[1].split()[:2] == ["loss", "1"]
    assert (tmp_path / "sent.html").stat().st_size > 0
