"""Submissions whose answer is lost, and second submissions, by sbatch and by Torque's qsub, on a real scheduler."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import ONE_RANK, POLL, wait_for_end, wait_for_line, wait_until

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import Withdrawal, get_platform
from cloudtrain.platforms.batch import cluster_jobs, submitting

COMMANDS = {"slurm": ("sbatch", "squeue", "--hold"), "torque": ("qsub", "qstat", "-h")}
SCRIPT = """
import os, sys, time
from cloudtrain import environment

print("begins", flush=True)
while sys.argv[1:] and not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
(environment.model_dir() / "model").write_text("trained")
"""
CLIENT = """
import os, sys
from cloudtrain import Estimator

os.environ["CLIENT"] = str(os.getpid())
Estimator("train.py", platform=sys.argv[1], distribution={"processes": {"processes_per_host": 1}}).fit(
    job_name=sys.argv[2], wait=False
)
"""


@dataclass
class Site:
    """A scheduler whose commands can be replaced by other programs of the same name."""

    platform: str
    slurm: SlurmCluster
    folder: Path

    def __post_init__(self) -> None:
        self.submits, self.shows, self.hold = COMMANDS[self.platform]
        (self.folder / "train.py").write_text(SCRIPT)
        (self.folder / "bin").mkdir()

    def replace(self, name: str, script: str) -> None:
        """``REAL`` in the script is the path of the command itself."""
        real = next(path for folder in os.environ["PATH"].split(":") if (path := shutil.which(name, path=folder))
                    and "bin" not in Path(path).relative_to(Path(path).anchor).parts[-3:-2])  # fmt: skip
        program = self.folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{script.replace('REAL', real)}\n")
        program.chmod(0o755)

    def restore(self) -> None:
        for program in (self.folder / "bin").iterdir():
            program.unlink()

    def submit(self, name: str, *arguments: str) -> Job:
        script = str(self.folder / "train.py")
        estimator = Estimator(
            script,
            platform=self.platform,
            arguments=list(arguments),
            distribution=ONE_RANK,
            platform_options=POLL if self.platform == "slurm" else {},
        )
        return estimator.fit(job_name=name, wait=False)

    def job_folder(self, name: str) -> Path:
        return Path(os.environ["CLOUDTRAIN_HOME"], "jobs", self.platform, name)

    def numbers(self, name: str) -> list[str]:
        return [
            one["number"]
            for one in json.loads((self.job_folder(name) / "batch.json").read_text())["submissions"]
        ]


@pytest.fixture(params=COMMANDS)
def site(
    request: pytest.FixtureRequest, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    if not shutil.which("qsub"):
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no qsub"
        pytest.skip("needs slurm-wlm-torque")
    site = Site(request.param, slurm, tmp_path)
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(cluster_jobs, "ANSWER_SECONDS", 10.0)
    return site


def test_a_submission_without_an_answer_is_found_in_the_queue(site: Site) -> None:
    site.replace(site.submits, 'REAL "$@" >&2; exec sleep 600')
    job = site.submit("slow")
    site.restore()
    newest = max(site.slurm("squeue", "-h", "-o", "%A", "--states=all").splitlines(), key=int)
    assert newest in site.numbers("slow")
    assert wait_for_end(job).status == JobStatus.COMPLETED


@pytest.mark.parametrize(
    "shown", [">/dev/null", '| sed "s/^/Submitted batch job /"'], ids=["nothing", "words"]
)
def test_a_submission_that_succeeds_without_a_number_is_found_in_the_queue(site: Site, shown: str) -> None:
    site.replace(site.submits, f'REAL "$@" {shown}; exit 0')
    job = site.submit("no-number")
    site.restore()
    assert wait_for_end(job).status == JobStatus.COMPLETED


def test_a_submission_without_any_answer_may_be_queued(site: Site) -> None:
    site.replace(site.submits, f'REAL {site.hold} "$@" >&2; exec sleep 600')
    site.replace(site.shows, "echo the name service is away >&2; exit 1")
    with pytest.raises(PlatformError, match="while job lost was submitted: it may be in the queue") as caught:
        site.submit("lost")
    assert "cloudtrain describe lost" in (caught.value.hint or "")
    job = Job.attach("lost", site.platform)
    assert job.status == JobStatus.PENDING
    site.restore()
    wait_until(
        lambda: job.status and (site.job_folder("lost") / "batch.json").exists(), "an answer of the queue"
    )
    site.slurm("scontrol", "release", site.numbers("lost")[0])
    assert wait_for_end(job).status == JobStatus.COMPLETED


def killed_client(site: Site, name: str, submits: str) -> Job:
    """The job of a client that was killed while it submitted it, after the command ``submits``."""
    site.replace(site.submits, f"{submits}\nkill -9 $CLIENT; kill -9 0")
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, site.platform, name],
        cwd=site.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    site.restore()
    return Job.attach(name, site.platform)


def test_a_stop_ends_a_job_that_never_got_into_the_queue(site: Site) -> None:
    job = killed_client(site, "nowhere", "")
    assert "its submission was interrupted" in job.describe().reason
    job.stop()
    wait_until(lambda: job.status == JobStatus.STOPPED, "an answer of the queue")


@pytest.mark.parametrize("is_submitted", [True, False], ids=["submitted", "not-submitted"])
def test_a_client_that_is_killed_while_it_submits(site: Site, is_submitted: bool) -> None:
    name = f"killed-{is_submitted}"
    job = killed_client(site, name, f'REAL {site.hold} "$@" >&2' if is_submitted else "")
    assert job.status == JobStatus.PENDING
    assert (site.job_folder(name) / "batch.json").exists() == is_submitted
    platform = get_platform(site.platform)
    assert isinstance(platform, Withdrawal)
    assert not platform.withdraw(name), "it may be in the queue, or on its way"
    record = site.job_folder(name) / "state.json"
    long_ago = {**json.loads(record.read_text()), "submitted_at": time.time() - submitting.SUBMIT_SECONDS - 1}
    record.write_text(json.dumps(long_ago))
    if is_submitted:
        assert job.status == JobStatus.PENDING
        site.slurm("scontrol", "release", site.numbers(name)[0])
        assert wait_for_end(job).status == JobStatus.COMPLETED
    else:
        wait_until(lambda: job.status == JobStatus.FAILED, "an answer of the queue")
        failure = job.describe().failure
        assert failure and "the job was never submitted: it is not in the queue of" in failure.message
        assert platform.withdraw(name)
        assert wait_for_end(site.submit(name)).status == JobStatus.COMPLETED


def test_a_job_of_another_that_has_the_number_is_left_alone(site: Site) -> None:
    site.replace(site.submits, f'REAL {"--hold" if site.platform == "slurm" else "-h"} "$@"')
    job = site.submit("mine")
    other = site.slurm.submit("sleep 600", "--hold", "--job-name=other")
    submissions = site.job_folder("mine") / "batch.json"
    submissions.write_text(submissions.read_text().replace(f'"{site.numbers("mine")[0]}"', f'"{other}"'))
    job.stop()
    assert site.slurm.state(other) == "PENDING"


def test_a_job_that_runs_is_not_started_again(site: Site) -> None:
    go = site.folder / "go"
    job = site.submit("alone", str(go))
    wait_for_line(job, "begins")
    model = site.job_folder("alone") / "hosts" / "127.0.0.2" / "model"
    wait_until(model.exists, "the folder of the model")
    (model / "part").write_text("a part of the model")
    for command in (site.submits, site.submits):
        done = subprocess.run(
            [command, "job.sh"], cwd=site.job_folder("alone"), capture_output=True, text=True
        )
        assert site.slurm.wait(int(done.stdout.split()[-1])) == "FAILED", done.stderr
    assert "the job runs already, as job" in (site.job_folder("alone") / "supervisor.log").read_text()
    assert (model / "part").read_text() == "a part of the model"
    go.touch()
    assert wait_for_end(job).status == JobStatus.COMPLETED
    assert job.logs().splitlines() == ["[rank 0] begins"]
    claim = site.job_folder("alone") / "claim.json"
    wait_until(lambda: not claim.exists(), "the end of the batch step")


def test_a_folder_that_a_shell_would_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    home = site.folder / "a $(touch pwned) `touch pwned`; touch 'pwned' \""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(home))
    job = wait_for_end(site.submit("hostile"))
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert not list(site.folder.rglob("pwned"))
    assert not Path("pwned").exists()
