"""cloudtrain connects to nothing but what a job names: no telemetry, no look for a new version."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path

import pytest
from command import CLOUDTRAIN
from connections import reached, traced
from dashboard_client import dashboard

from cloudtrain.cli._commands import COMMANDS as COMMAND_NAMES

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
PAGES = ("", "rows", "jobs/local/sent", "jobs/local/sent/points", "jobs/local/sent/lines", "sweeps/tried")
"""Of the dashboard. test_dashboard_in_a_browser.py sees that they load nothing else."""
ELSEWHERE = {
    "dashboard": "it serves pages: see PAGES",
    "slurm": "it only logs in to the host that it is given",
}
"""Commands that are not in `COMMANDS`, and why."""


def test_every_command_is_traced_or_left_out_for_a_reason() -> None:
    names = {line.split()[1] for line in COMMANDS.split("\n")[1:-1]}
    assert {*COMMAND_NAMES} - names == {*ELSEWHERE}


@pytest.mark.timeout(900)
def test_no_process_connects_to_an_address_outside_of_this_machine(tmp_path: Path) -> None:
    """Of all commands, their supervisors and their ranks, and of the dashboard while it shows its pages."""
    (tmp_path / "train.py").write_text(TRAIN)
    found, outputs, calls = set(), {}, tmp_path / "calls"
    for line in COMMANDS.split("\n")[1:-1]:
        command = line.split()
        whole = [*traced(calls), CLOUDTRAIN, *command[1:]]
        done = subprocess.run(whole, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        outputs[line.strip()] = done.stdout + done.stderr
        assert done.returncode != 2, f"{line.strip()} is not a command line: {done.stderr}"
        found |= {(address, command[1]) for address in reached(calls)}
    with dashboard(tmp_path, before=traced(calls)) as client:
        client.enter()
        assert {client.get(page).status for page in PAGES} == {200}
    found |= {(address, "dashboard") for address in reached(calls)}
    assert ("127.0.0.1", "submit") in found  # the hosts of the job: the trace sees what it should
    assert {
        (address, command) for address, command in found if not ipaddress.ip_address(address).is_loopback
    } == set()
    assert outputs["cloudtrain metrics sent"].splitlines()[1].split()[:2] == ["loss", "1"]
    assert (tmp_path / "sent.html").stat().st_size > 0
