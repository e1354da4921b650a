"""Jobs on PBS Professional and Cobalt, whose commands answer as recorded. Everything else is real."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from recorded_site import Site, make_site, wait_for_ranks

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.registry import get_platform

pytestmark = pytest.mark.proof(
    "PBS Pro, Torque, Cobalt", imitated="recorded `qsub`, `qstat`, `pbsdsh`, `aprun`"
)


@pytest.fixture
def site_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Site]:
    return partial(make_site, folder=tmp_path, monkeypatch=monkeypatch)


@pytest.mark.parametrize("platform", ["pbs", "cobalt"])
def test_a_job_on_two_nodes(site_of: Callable[[str], Site], platform: str) -> None:
    site = site_of(platform)
    job = site.submit("two-nodes")
    assert job.describe().status == JobStatus.COMPLETED, job.logs()
    lines = job.logs().splitlines()
    for rank, host in enumerate(("127.0.0.2", "127.0.0.3")):
        assert f"[rank {rank}] seen {rank} 2 {host} hf_s3cret yes None" in lines
        assert f"[rank {rank}] foreign []" in lines
    place = Path(job.describe().place)
    left = [path for path in place.rglob("*") if path.is_file() and b"hf_s3cret" in path.read_bytes()]
    assert {path.name for path in left} <= {"job.log", "rank-0.log", "rank-1.log"}
    assert not list(place.glob("relay-*")), "what the nodes were given is removed"
    assert ("-n 2" if platform == "cobalt" else "-l select=2:mpiprocs=1") in site.asked


@pytest.mark.parametrize("platform", ["pbs", "cobalt"])
def test_a_stop_in_the_queue(site_of: Callable[[str], Site], platform: str) -> None:
    site = site_of(platform)
    site.set("held")
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
    site.set("held")
    job = site.submit("killed", wait=False)
    site.set("exit_status", "-29")
    site.lose_job()
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
    wait_for_ranks(job)
    os.killpg(site.job["pid"], signal.SIGKILL)
    subprocess.run(["qrerun", "1042.pbs01"], check=True)
    assert job.wait().describe().status == JobStatus.COMPLETED, job.logs()
    assert job.describe().attempt == 1
    assert job.logs().count("[rank 0] seen 0 2 127.0.0.2 hf_s3cret yes None") == 2


def test_a_server_that_does_not_answer_ends_no_job(site_of: Callable[[str], Site]) -> None:
    """Some versions of qstat print an error and exit with 0."""
    site = site_of("pbs")
    site.set("held")
    job = site.submit("waiting", wait=False)
    site.set("away")
    platform = get_platform("pbs")
    assert platform.describe("waiting").status == JobStatus.PENDING
    with pytest.raises(PlatformError, match="was not taken out of the queue"):
        platform.stop("waiting")
    (site.state / "away").unlink()
    job.stop()
    assert job.wait().describe().status == JobStatus.STOPPED
