"""Jobs on LSF, whose commands answer as recorded. Everything else is real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from login_node import ALIAS, LoginNode

from cloudtrain import Estimator, Job
from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.control import log_out
from cloudtrain.platforms.registry import get_platform

COMMANDS = Path(__file__).with_name("recorded_lsf.py")

SCRIPT = """
import os, sys, time
from cloudtrain import environment

names = ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "A_TOKEN", "FROM_PROLOGUE", "CUDA_VISIBLE_DEVICES")
print("seen", *(os.environ.get(name) for name in names), flush=True)
print("foreign", [name for name in os.environ if name.startswith("LSB_")], flush=True)
if "--sleep" in sys.argv and os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    time.sleep(60)
(environment.model_dir() / os.environ["RANK"]).write_text("a part")
"""

if os.geteuid():
    assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "these tests need root"
    pytest.skip("needs root: each node has its own host name", allow_module_level=True)


@dataclass
class Site:
    state: Path
    folder: Path

    def submit(self, name: str, *arguments: str, wait: bool = True, **options: Any) -> Job:
        return Estimator(
            str(self.folder / "train.py"),
            platform="lsf",
            arguments=list(arguments),
            instance_count=2,
            distribution={"processes": {"processes_per_host": 1}},
            environment={"A_TOKEN": "hf_s3cret"},
            platform_options={"prologue": ["export FROM_PROLOGUE=yes"], "python": sys.executable, **options},
            disable_output_compression=True,
        ).fit(job_name=name, wait=wait)

    def set(self, name: str, text: str = "") -> None:
        (self.state / name).write_text(text)

    @property
    def job(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "job").read_text())
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    commands, state = tmp_path / "bin", tmp_path / "state"
    commands.mkdir()
    state.mkdir()
    for name in ("bsub", "bjobs", "bhist", "bkill", "brequeue", "blaunch"):
        (commands / name).symlink_to(COMMANDS)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECORDED_STATE", str(state))
    return Site(state, tmp_path)


def test_a_job_on_two_hosts(site: Site) -> None:
    job = site.submit("two-hosts")
    assert job.describe().status == JobStatus.COMPLETED, job.logs()
    lines = job.logs().splitlines()
    for rank, host in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"[rank {rank}] seen {rank} 2 {host} hf_s3cret yes of {host}" in lines
        assert f"[rank {rank}] foreign []" in lines
    assert not list(Path(job.describe().place).glob("relay-*")), "what the nodes were given is removed"
    asked = (site.state / "asked").read_text().splitlines()
    assert {"-J two-hosts", "-n 2", '-R "span[ptile=1]"', "-r"} <= {*asked}


@pytest.mark.parametrize("version", ["new", "old"])
def test_a_stop_in_the_queue(site: Site, version: str) -> None:
    """Versions before 10.1 Fix Pack 2 have no -json."""
    site.set(version)
    site.set("held")
    waiting = site.submit("waiting", wait=False)
    states = get_platform("lsf").states("waiting")  # type: ignore[attr-defined]
    assert states[-1].message == "Job requirements for reserving resource (ngpus) not satisfied: 2 hosts"
    waiting.stop()
    assert waiting.wait().describe().status == JobStatus.STOPPED


def test_a_stop_of_a_running_job(site: Site) -> None:
    job = site.submit("running", "--sleep", wait=False)
    _wait_for_ranks(job)
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED


def test_a_job_that_lsf_runs_again(site: Site) -> None:
    """Its first host was lost: the job continues, with its secrets, and counts that as an attempt."""
    job = site.submit("again", "--sleep", wait=False)
    _wait_for_ranks(job)
    os.killpg(site.job["pid"], signal.SIGKILL)
    subprocess.run(["brequeue", "21680"], check=True)
    assert job.wait().describe().status == JobStatus.COMPLETED, job.logs()
    assert job.describe().attempt == 1


def _wait_for_ranks(job: Job) -> None:
    deadline = time.monotonic() + 60
    while job.logs().count("seen") < 2:
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.1)


@pytest.mark.parametrize("source", ["bjobs", "bhist"])
def test_lsf_explains_the_end_of_a_job(site: Site, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """bhist still knows a job that bjobs has forgotten, after CLEAN_PERIOD."""
    site.set("held")
    job = site.submit("killed", wait=False)
    reason = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"
    site.set("ended", json.dumps({"exit_reason": reason, "exit_code": "140"}))
    site.set("job", json.dumps({**site.job, "pid": 4194304}))
    if source == "bhist":
        site.set("cleaned")
        assert job.describe().status == JobStatus.PENDING, "bjobs may show a job a little later"
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 100)
    described = job.describe()
    assert described.status == JobStatus.FAILED
    assert described.failure and described.failure.failure_class == FailureClass.KILLED
    assert "it used more time than it had asked for" in described.failure.message


def test_what_bsub_refuses(site: Site) -> None:
    with pytest.raises(PlatformError, match="LSF does not take the job: nowhere: No such queue"):
        site.submit("refused", queue="nowhere")


def test_a_lost_answer_of_bsub(site: Site) -> None:
    """The job is found by its folder, and is not submitted again."""
    site.set("held")
    site.set("silent")
    job = site.submit("silent", wait=False)
    assert job.describe().status == JobStatus.PENDING
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED


@pytest.mark.parametrize("how", ["away", "torn"])
def test_a_scheduler_that_does_not_answer_ends_no_job(site: Site, how: str) -> None:
    site.set("held")
    job = site.submit("waiting", wait=False)
    site.set(how)
    platform = get_platform("lsf")
    assert platform.describe("waiting").status == JobStatus.PENDING
    with pytest.raises(PlatformError, match="was not taken out of the queue"):
        platform.stop("waiting")
    (site.state / how).unlink()
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED


def test_a_login_node(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a laptop, which has neither LSF nor the cluster's folder."""
    commands, path = os.environ["PATH"].split(":", 1)
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name:
        home = Path(name, "home")
        home.mkdir()
        variables = f'export HOME={home} PATH="{commands}:$PATH" RECORDED_STATE={site.state}'
        node = LoginNode(Path(name, "node"), noise=variables)
        monkeypatch.setenv("PATH", f"{node.folder}/bin:{path}")
        try:
            job = site.submit("far", login=ALIAS)
            assert job.describe().status == JobStatus.COMPLETED, job.logs()
            assert "[rank 1] seen 1 2 127.0.0.3 hf_s3cret yes of 127.0.0.3" in job.logs().splitlines()
            assert site.job["folder"] == f"{home}/.local/state/cloudtrain/jobs/lsf/far"
        finally:
            log_out(ALIAS)
            node.stop()
