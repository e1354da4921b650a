"""Jobs from a laptop: through ssh to a login node, without a shared file system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from command import cloudtrain
from login_node import ALIAS, LoginNode
from slurm_cluster import SlurmCluster

from cloudtrain.platforms.batch.control import log_out

SCRIPT = """
import os, sys, time
from cloudtrain import environment

print("begins", os.environ["SM_CURRENT_HOST"], os.environ.get("A_TOKEN"), flush=True)
for number in range(20):
    print("line", number, flush=True)
if "sleep" in sys.argv:
    time.sleep(300)
(environment.model_dir() / "model.bin").write_bytes(bytes(range(256)) * 1000)
(environment.model_dir() / "a folder").mkdir(exist_ok=True)
(environment.model_dir() / "a folder" / "ü").write_text("small")
"""
FIRST_TRIPS, LATER_TRIPS = 8, 6
"""The commands of a submission: what the cluster has, the time limit of its partition for a job that sets none, the
name, two uploads the first time, files, sbatch, number."""


@dataclass
class Laptop:
    """A client whose home is not on the cluster."""

    folder: Path
    node: LoginNode
    scratch: Path
    environ: dict[str, str] = field(default_factory=dict)

    def beside(self) -> Laptop:
        """Another machine of this user, which has submitted nothing."""
        return replace(self, environ={**self.environ, "CLOUDTRAIN_HOME": str(self.folder / "elsewhere")})

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cloudtrain", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        done = cloudtrain(*arguments, cwd=self.folder, env=self.environ)
        said = done.out + done.err
        assert done.code == code, said
        return said

    @property
    def trips(self) -> int:
        """How many commands the node has carried out."""
        return self.node.log.count("Starting session: forced-command")


@pytest.fixture
def laptop(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laptop]:
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name:
        folder = Path(name)
        scratch, home = folder / "scratch", folder / "laptop"
        scratch.mkdir()
        home.mkdir()
        node = LoginNode(
            folder / "node",
            noise=f"export HOME={folder}/there SCRATCH={scratch} PATH={folder}/bin:$PATH; echo Welcome",
            environ={"SLURM_CONF": str(slurm.conf)},
        )
        (home / "train.py").write_text(SCRIPT)
        config = {"login": ALIAS, "folder": "$SCRATCH/ct", "poll_seconds": 1}
        (home / "config.yaml").write_text(
            json.dumps({"platform": "slurm", "slurm": {"profiles": {"cluster": config}}})
        )
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "CLOUDTRAIN"))
        }
        environ |= {
            "HOME": str(home),
            "CLOUDTRAIN_HOME": str(home / "state"),
            "CLOUDTRAIN_CONFIG": str(home / "config.yaml"),
            "PATH": f"{node.folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
        }
        monkeypatch.setenv("CLOUDTRAIN_HOME", str(home / "state"))
        monkeypatch.setenv("PATH", environ["PATH"])
        yield Laptop(home, node, scratch, environ)
        log_out(ALIAS)
        node.stop()


@pytest.mark.soak
def test_jobs_from_a_laptop(laptop: Laptop, slurm: SlurmCluster) -> None:
    arguments = ["submit", "train.py", "--set", "environment.A_TOKEN=hf_s3cret", "--no-wait"]
    laptop.run(*arguments, "--name", "first", "--processes-per-host", "2")
    assert (laptop.node.logins, laptop.trips) == (1, FIRST_TRIPS)
    said = laptop.run("logs", "-f", "first")
    for rank in (0, 1):
        lines = [
            line.removeprefix(f"[rank {rank}] ") for line in said.splitlines() if f"[rank {rank}]" in line
        ]
        assert lines == ["begins 127.0.0.2 hf_s3cret", *(f"line {number}" for number in range(20))]

    before = laptop.trips
    described = json.loads(laptop.run("describe", "first", "--json"))
    assert described["status"] == "Completed"
    assert described["place"] == f"kraken:{laptop.scratch}/ct/jobs/slurm/first"
    assert laptop.trips <= before + 4, "two for the description, two for the request, which the history keeps"
    assert laptop.run("download", "first", "--to", "out").strip() == "out/model.tar.gz"
    assert laptop.run("list").splitlines()[1].split()[:3] == ["first", "slurm", "Completed"]
    assert laptop.node.logins == 1
    assert "s3cret" not in "".join(
        file.read_text(errors="replace")
        for file in laptop.scratch.rglob("jobs/slurm/first/*")
        if file.is_file()
    ).replace("begins 127.0.0.2 hf_s3cret", "")

    before = laptop.trips
    laptop.run(*arguments, "--name", "second", "--set", "disable_output_compression=true")
    assert laptop.trips == before + LATER_TRIPS
    laptop.run("wait", "second")
    assert laptop.run("download", "second").strip() == "model"
    assert (laptop.folder / "model/model.bin").read_bytes() == bytes(range(256)) * 1000
    assert (laptop.folder / "model/a folder/ü").read_text() == "small"
    said = laptop.run(*arguments, "--name", "second", code=1)
    assert "there is already a slurm job second" in said
    said = laptop.run(*arguments, "--name", "third", "--set", "platform_options.partition=mian", code=1)
    assert "Slurm does not take the job: " in said and "invalid partition" in said
    assert sorted(path.name for path in (laptop.scratch / "ct/jobs/slurm").iterdir()) == ["first", "second"]
    assert laptop.node.logins == 1

    other = laptop.beside()
    assert "--platform NAME" in other.run("describe", "first", code=1)
    second, first = json.loads(other.run("list", "--platform", "slurm", "--json"))
    assert (second["name"], first) == ("second", {key: described[key] for key in first})
    assert json.loads(other.run("describe", "first", "--platform", "slurm", "--json")) == described
    assert json.loads(other.run("describe", "first", "--json")) == described
    assert other.run("logs", "first") == laptop.run("logs", "first")
    assert "Completed" in other.run("wait", "first")
    laptop.run(*arguments, "--name", "waits", "--set", "platform_options.begin=now+1hour")
    assert "no job w* among those submitted from this machine" in other.run("stop", "w*", code=1)
    assert "waits" not in other.run("list")
    other.run("list", "--platform", "slurm")
    assert "no job w* among those submitted from this machine" in other.run("stop", "w*", code=1)
    assert json.loads(other.run("describe", "waits", "--json"))["status"] == "Pending"
    assert "waits: Stopped" in other.run("stop", "waits").splitlines()
    assert laptop.run("stop", "w*") == ""


def test_a_connection_that_breaks_while_a_job_runs(laptop: Laptop) -> None:
    laptop.run("submit", "train.py", "--name", "long", "--no-wait", "--", "sleep")
    following = laptop.start("logs", "-f", "long")
    assert following.stdout
    lines = [following.stdout.readline()]
    while "line 19" not in lines[-1]:
        assert lines[-1], lines
        lines.append(following.stdout.readline())
    laptop.node.break_connections()
    began = time.monotonic()
    assert "long: Stop" in laptop.run("stop", "long")
    rest, _ = following.communicate(timeout=120)
    assert time.monotonic() - began < 120
    assert sum("line 19" in line for line in [*lines, *rest.splitlines()]) == 1
    assert json.loads(laptop.run("describe", "long", "--json"))["status"] == "Stopped"
    laptop.node.stop()
    said = laptop.run("describe", "long", code=1)
    assert "kraken does not accept connections" in said
    assert "this must work: ssh kraken true" in said
    said = laptop.run("list", "--platform", "slurm")
    assert said.count("the jobs on kraken are left out of the list") == 1, said


def test_a_login_node_that_disappears_during_a_submission(laptop: Laptop, slurm: SlurmCluster) -> None:
    """The client never gets the number, and no element of the array is lost: the cluster knows which is which."""
    assert laptop.node.sshd
    sbatch = laptop.folder.parent / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sshd = laptop.node.sshd.pid
    sbatch.write_text(
        f'#!/bin/sh\nPATH=${{PATH#*:}}\nsbatch "$@"; code=$?\nkill -9 {sshd} $(pgrep -P {sshd})\nexit $code\n'
    )
    sbatch.chmod(0o755)
    (laptop.folder / "values.yaml").write_text("hyperparameters.size: [1, 2]")
    options = ["--set", "platform_options.begin=now+1hour", "--no-wait"]
    said = laptop.run("submit", "train.py", "--name", "lost", "--array", "values.yaml", *options, code=1)
    assert "while job lost-0 was submitted: it may be in the queue" in said
    laptop.node.start()
    jobs = laptop.scratch / "ct/jobs/slurm"
    assert not (jobs / "lost-1/batch.json").exists()
    for record in jobs.glob("*/state.json"):
        document = json.loads(record.read_text())
        record.write_text(json.dumps({**document, "submitted_at": document["submitted_at"] - 1000}))
    described = json.loads(laptop.run("describe", "lost-0", "--json"))
    assert described["status"] == "Pending", described
    assert "Stopped" in laptop.run("stop", "lost-1")
    assert slurm("squeue", "--noheader", "--array", "--format=%j %K").split("\n") == ["lost 0"]


@pytest.mark.soak
def test_ctrl_c_detaches_and_leaves_nothing_on_the_login_node(laptop: Laptop) -> None:
    submitting = laptop.start("submit", "train.py", "--name", "left", "--", "sleep")
    assert submitting.stdout
    while "line 19" not in (line := submitting.stdout.readline()):
        assert line
    tail = ["pgrep", "-f", f"^tail -c .* {laptop.scratch}/ct/jobs/slurm/left/job.log"]
    assert subprocess.run(tail, check=False, capture_output=True).stdout
    submitting.send_signal(signal.SIGINT)
    submitting.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while subprocess.run(tail, check=False, capture_output=True).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert json.loads(laptop.run("describe", "left", "--json"))["status"] == "Running"
