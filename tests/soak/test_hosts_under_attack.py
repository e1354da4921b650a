"""A job on four hosts and a spare one, behind ssh, whose hosts, network and storage fail at random all the time."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest
from attacked_hosts import BUCKET, CALM_SECONDS, SCRIPT, Attack, storage_of
from ssh_hosts import ssh_hosts
from weather_figures import Figures
from weather_training import Journal, value_at

from cloudtrain import Job
from cloudtrain.contract import JobStatus

SECONDS = float(os.environ.get("CLOUDTRAIN_ATTACK_SECONDS", "900"))
SEED = int(os.environ.get("CLOUDTRAIN_SEED", "1"))
END_SECONDS = 300.0
"""The longest time that the job may take to end, once there are no more faults."""


@pytest.mark.timeout(SECONDS + 3 * END_SECONDS)
def test_a_job_survives_all_that_happens_to_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    with ssh_hosts(5, tmp_path) as hosts, storage_of(hosts) as storage:
        monkeypatch.setenv("CLOUDTRAIN_HOME", str(hosts.own / "home"))
        hosts.write_script(SCRIPT)
        variables = [f"environment.{name}={value}" for name, value in storage.environment.items()]
        options = [
            f"platform_options.hosts={','.join(f'{name}:1' for name in hosts.names)}",
            f"platform_options.python={sys.executable}",
            "spare_hosts=1",
            "host_timeout=6",
            "stop_grace=10",
            "max_retry_attempts=30",
            f"checkpoint_s3_uri=s3://{BUCKET}/checkpoints",
            *variables,
        ]
        settings = [part for one in options for part in ("--set", one)]
        arguments = ["--no-wait", *settings, "--", str(marks)]
        code, output = hosts.submit("attacked", *arguments, env=storage.environment)
        assert code == 0, output
        job, attack = Job.attach("attacked", platform="hosts"), Attack(hosts, storage, random.Random(SEED))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(attack.draw.uniform(*CALM_SECONDS))
            assert job.status == JobStatus.RUNNING, f"{job.describe()}\n{attack.applied}\n{job.logs()}"
            attack.apply_one()
        (marks / "enough").touch()
        deadline = time.monotonic() + END_SECONDS
        while not job.status.is_final:
            assert time.monotonic() < deadline, f"{attack.applied}\n{job.logs()}"
            time.sleep(0.2)
        described = job.describe()
        print(described, attack.applied, f"seed {SEED}", sep="\n")
        assert described.status == JobStatus.COMPLETED, job.logs()
        hosts.wait_for_silence()
    figures = Figures()
    Journal.read(marks / "journal").judge(f"seed {SEED}", figures)
    assert not figures.violations, str(figures)
    results = [
        line.split() for line in (marks / "journal").read_text().splitlines() if line.startswith("result")
    ]
    steps = {int(step) for _, step, _ in results}
    assert len(results) >= 4
    assert {value for *_, value in results} == {value_at(max(steps))}
    print(figures)
