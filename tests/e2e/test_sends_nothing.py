"""cloudtrain connects to nothing but what a job names: no telemetry, no look for a new version."""

from __future__ import annotations

import ipaddress
import re
import subprocess
from pathlib import Path

import pytest
from command import CLOUDTRAIN

from cloudtrain.cli._commands import COMMANDS as COMMAND_NAMES

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
    cloudtrain init first
    cloudtrain examples jax
    cloudtrain submit train.py --name sent --processes-per-host 1 --instance-count 2
    cloudtrain run -np 2 python train.py
    cloudtrain sweep train.py --search lr=0.1,0.2 --metric loss --trials 1 --name tried
    cloudtrain list
    cloudtrain describe sent --json
    cloudtrain logs sent
    cloudtrain wait sent
    cloudtrain stop sent
    cloudtrain preempt sent
    cloudtrain stacks sent --last
    cloudtrain notify sent
    cloudtrain metrics sent
    cloudtrain top sent --json
    cloudtrain report sent --output sent.html
    cloudtrain export --to jobs.csv
    cloudtrain timeline sent
    cloudtrain download sent
    cloudtrain upload sent
    cloudtrain checkpoints list sent
    cloudtrain doctor --platform local
    cloudtrain check train.py
    cloudtrain plan train.py --steps 10 --step-seconds 1
    cloudtrain platforms
    cloudtrain offers --platform local
    cloudtrain prices
    cloudtrain image list
    cloudtrain sagemaker migrate train.py
    cloudtrain s3 env
    cloudtrain completion bash
    cloudtrain submit train.py --platform kubernetes --set image_uri=python:3.12 --set output_path=s3://a/b --dry-run
    cloudtrain submit train.py --platform slurm --dry-run
    cloudtrain clean --dry-run
"""
ELSEWHERE = {
    "dashboard": "it serves until it is stopped: test_dashboard_in_a_browser.py sees that its pages load nothing else",
    "slurm": "it only logs in to the host that it is given",
}
"""Commands that are not traced here, and why."""


def test_every_command_is_traced_or_left_out_for_a_reason() -> None:
    traced = {line.split()[1] for line in COMMANDS.split("\n")[1:-1]}
    assert {*COMMAND_NAMES} - traced == {*ELSEWHERE}


@pytest.mark.timeout(900)
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
        assert done.returncode != 2, f"{line.strip()} is not a command line: {done.stderr}"
        reached |= {(address, command[1]) for address in _CONNECT.findall(calls.read_text())}
    assert ("127.0.0.1", "submit") in reached  # the hosts of the job: the trace sees what it should
    assert {
        (address, command) for address, command in reached if not ipaddress.ip_address(address).is_loopback
    } == set()
    assert outputs["cloudtrain metrics sent"].splitlines()[1].split()[:2] == ["loss", "1"]
    assert (tmp_path / "sent.html").stat().st_size > 0
