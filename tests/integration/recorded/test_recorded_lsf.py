"""Jobs on LSF, whose commands answer as recorded. Everything else is real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from login_node import ALIAS, LoginNode
from recorded_site import Site, make_site, wait_for_ranks

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.control import log_out
from cloudtrain.platforms.registry import get_platform

pytestmark = pytest.mark.proof("LSF", imitated="`bsub`, `bjobs`, `bkill` as documented")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return make_site("lsf", tmp_path, monkeypatch)


def test_a_job_on_two_hosts(site: Site) -> None:
    job = site.submit("two-hosts")
    assert job.describe().status == JobStatus.COMPLETED, job.logs()
    lines = job.logs().splitlines()
    for rank, host in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"[rank {rank}] seen {rank} 2 {host} hf_s3cret yes of {host}" in lines
        assert f"[rank {rank}] foreign []" in lines
    assert not list(Path(job.describe().place).glob("relay-*")), "what the nodes were given is removed"
    assert {"-J two-hosts", "-n 2", '-R "span[ptile=1]"', "-r"} <= {*site.asked}


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
    wait_for_ranks(job)
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED


def test_a_job_that_lsf_runs_again(site: Site) -> None:
    """Its first host was lost: the job continues, with its secrets, and counts that as an attempt."""
    job = site.submit("again", "--sleep", wait=False)
    wait_for_ranks(job)
    os.killpg(site.job["pid"], signal.SIGKILL)
    subprocess.run(["brequeue", "21680"], check=True)
    assert job.wait().describe().status == JobStatus.COMPLETED, job.logs()
    assert job.describe().attempt == 1


@pytest.mark.parametrize("source", ["bjobs", "bhist"])
def test_lsf_explains_the_end_of_a_job(site: Site, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """bhist still knows a job that bjobs has forgotten, after CLEAN_PERIOD."""
    site.set("held")
    job = site.submit("killed", wait=False)
    reason = "TERM_RUNLIMIT: job killed after reaching LSF run time limit"
    site.set("ended", json.dumps({"exit_reason": reason, "exit_code": "140"}))
    site.lose_job()
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
