"""Jobs on PBS Professional and Cobalt, whose commands answer as recorded. Everything else is real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, Job
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.registry import get_platform

COMMANDS = Path(__file__).with_name("recorded_commands.py")

SCRIPT = """
import os, sys, time
from cloudtrain import environment

names = ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "A_TOKEN", "FROM_PROLOGUE")
print("seen", *(os.environ.get(name) for name in names), flush=True)
print("foreign", [name for name in os.environ if name.startswith(("PBS_", "COBALT_"))], flush=True)
if "--sleep" in sys.argv and os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    time.sleep(60)
(environment.model_dir() / os.environ["RANK"]).write_text("a part")
"""

if os.geteuid():
    assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "these tests need root"
    pytest.skip("needs root: each node has its own host name", allow_module_level=True)


@dataclass
class Site:
    platform: str
    state: Path
    folder: Path

    def submit(self, name: str, *arguments: str, wait: bool = True, **options: Any) -> Job:
        return Estimator(
            str(self.folder / "train.py"),
            platform=self.platform,
            arguments=list(arguments),
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            environment={"A_TOKEN": "hf_s3cret"},
            platform_options={"prologue": ["export FROM_PROLOGUE=yes"], "python": sys.executable, **options},
            disable_output_compression=True,
        ).fit(job_name=name, wait=wait)


@pytest.fixture
def site_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Site]:
    def make(platform: str) -> Site:
        commands, state = tmp_path / "bin", tmp_path / "state"
        commands.mkdir()
        state.mkdir()
        starter = "aprun" if platform == "cobalt" else "pbsdsh"
        for name in ("qsub", "qselect", "qstat", "qrerun", "qdel", starter):
            (commands / name).symlink_to(COMMANDS)
        (tmp_path / "train.py").write_text(SCRIPT)
        monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
        monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("RECORDED", platform)
        monkeypatch.setenv("RECORDED_STATE", str(state))
        return Site(platform, state, tmp_path)

    return make


@pytest.mark.parametrize("platform", ["pbs", "cobalt"])
def test_a_job_on_two_nodes(site_of: Callable[[str], Site], platform: str) -> None:
    site = site_of(platform)
    job = site.submit("two-nodes")
    assert job.describe().status == JobStatus.COMPLETED, job.logs()
    lines = job.logs().splitlines()
    for rank, host in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"[rank {rank}] seen {rank} 2 {host} hf_s3cret yes" in lines
        assert f"[rank {rank}] foreign []" in lines
    place = Path(job.describe().place)
    left = [path for path in place.rglob("*") if path.is_file() and b"hf_s3cret" in path.read_bytes()]
    assert {path.name for path in left} <= {"job.log", "rank-0.log", "rank-1.log"}
    assert not list(place.glob("relay-*")), "what the nodes were given is removed"
    asked = (site.state / "asked").read_text()
    assert ("-n 2" if platform == "cobalt" else "-l select=2:mpiprocs=1") in asked.splitlines()


@pytest.mark.parametrize("platform", ["pbs", "cobalt"])
def test_a_stop_in_the_queue(site_of: Callable[[str], Site], platform: str) -> None:
    site = site_of(platform)
    (site.state / "held").touch()
    waiting = site.submit("waiting", wait=False)
    states = get_platform(platform).states("waiting")  # type: ignore[attr-defined]
    assert states[-1].message in (
        "it waits for nodes",
        "Not Running: Insufficient amount of resource: ngpus (R: 4 A: 0 T:8)",
    )
    waiting.stop()
    assert waiting.wait().describe().status == JobStatus.STOPPED


def test_pbs_explains_the_end_of_a_job(site_of: Callable[[str], Site]) -> None:
    site = site_of("pbs")
    (site.state / "held").touch()
    job = site.submit("killed", wait=False)
    (site.state / "exit_status").write_text("-29")
    job_of = json.loads((site.state / "job").read_text())
    (site.state / "job").write_text(json.dumps({**job_of, "pid": 4194304}))
    described = job.describe()
    assert described.status == JobStatus.FAILED
    assert described.failure and described.failure.failure_class == FailureClass.KILLED
    assert "it used more walltime than it had asked for" in described.failure.message


def test_what_qsub_refuses(site_of: Callable[[str], Site]) -> None:
    with pytest.raises(PlatformError, match="PBS does not take the job: Unknown queue"):
        site_of("pbs").submit("refused", queue="nowhere")


def test_a_job_that_the_server_starts_again(site_of: Callable[[str], Site]) -> None:
    """Its first node was lost: the job continues, with its secrets, and counts that as an attempt."""
    site = site_of("pbs")
    job = site.submit("again", "--sleep", wait=False)
    deadline = time.monotonic() + 60
    while job.logs().count("seen") < 2:
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.1)
    os.killpg(json.loads((site.state / "job").read_text())["pid"], signal.SIGKILL)
    subprocess.run(["qrerun", "1042.pbs01"], check=True)
    assert job.wait().describe().status == JobStatus.COMPLETED, job.logs()
    assert job.describe().attempt == 1
    assert job.logs().count("[rank 0] seen 0 2 127.0.0.2 hf_s3cret yes") == 2


def test_a_server_that_does_not_answer_ends_no_job(site_of: Callable[[str], Site]) -> None:
    """Some versions of qstat print an error and exit with 0."""
    site = site_of("pbs")
    (site.state / "held").touch()
    job = site.submit("waiting", wait=False)
    (site.state / "away").touch()
    platform = get_platform("pbs")
    assert platform.describe("waiting").status == JobStatus.PENDING
    with pytest.raises(PlatformError, match="was not taken out of the queue"):
        platform.stop("waiting")
    (site.state / "away").unlink()
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED
