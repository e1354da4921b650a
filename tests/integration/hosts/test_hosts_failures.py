"""A failure on one of two hosts ends both soon, and neither reports success."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hosts_job import LAUNCHES, HostsJob, Launch, StartJob

from cloudtrain.contract import FailureClass

pytestmark = pytest.mark.proof(
    "hosts by SSH", real="OpenSSH 9.2, hosts are network namespaces of one machine"
)

RANK_3 = """
import os, sys, time
print("started", flush=True)
if os.environ["RANK"] == "3":
    {ending}
time.sleep(100)
"""

ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "exit-5": ("sys.exit(5)", {"exit_code": 5, "failure_class": FailureClass.USER_ERROR}),
    "system-exit-7": ("raise SystemExit(7)", {"exit_code": 7, "exception_type": None}),
    "exception": (
        "raise OSError('no errno')",
        {"exit_code": 1, "exception_type": "OSError", "message": "no errno"},
    ),
    "kill-9": (
        "os.kill(os.getpid(), 9)",
        {"exit_code": 137, "signal": 9, "failure_class": FailureClass.KILLED},
    ),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_one_rank_fails(start_job: StartJob, launch: Launch, case: str) -> None:
    ending, expected = ENDINGS[case]
    job = start_job(RANK_3.format(ending=ending), launch)
    assert job.wait() == [expected["exit_code"]] * 2, job.output()
    for part in job.parts:
        report = part.failure()
        assert (report.rank, report.host) == (3, "n2")
        assert {name: getattr(report, name) for name in expected} == expected
        assert part.paths.failure.read_text().startswith("rank 3 on n2 ")
        assert not part.paths.success.exists()


@pytest.mark.parametrize("victim", ["n1", "n2"])
def test_a_host_is_killed(start_job: StartJob, launch: Launch, victim: str) -> None:
    job = start_job(RANK_3.format(ending="pass"), launch)
    job.wait_for("started", 4)
    job.part(victim).program.kill()
    job.wait()
    [left] = {"n1", "n2"} - {victim}
    assert_lost(job, left, victim)
    assert not job.part(victim).paths.success.exists()
    assert not job.part(victim).paths.failure.exists()  # it could not write anything


@pytest.mark.parametrize(  # torchrun in the soak: in CI, a host is killed under it, and mpirun is restarted
    "launch",
    [pytest.param(name, marks=[pytest.mark.soak] * (name == "torchrun")) for name in LAUNCHES],
    indirect=True,
)
def test_killed_hosts_can_be_restarted(start_job: StartJob, launch: Launch) -> None:
    """Like containers restarted in place: files of the first attempt remain, and process ids repeat."""
    job = start_job(RANK_3.format(ending="pass"), launch)
    job.wait_for("started", 4)
    job.kill()
    for part in job.parts:
        (part.paths.code / "train.py").write_text("pass")
    job.start()
    assert job.wait() == [0, 0], job.output()


def test_the_cable_is_pulled(start_job: StartJob, launch: Launch) -> None:
    """No connection is closed and no packet arrives: only silence reveals the loss."""
    job = start_job(RANK_3.format(ending="pass"), launch, environment={"CLOUDTRAIN_HOST_TIMEOUT": "5"})
    job.wait_for("started", 4)
    job.part("n2").machine.unplug()
    began = time.monotonic()
    job.wait(60)
    assert 4 < time.monotonic() - began < 50
    assert_lost(job, "n1", "n2")
    assert_lost(job, "n2", "n1")


@pytest.mark.soak  # in CI, twelve seconds
def test_two_seconds_without_network_do_no_harm(start_job: StartJob, launch: Launch) -> None:
    job = start_job("import time; print('started', flush=True); time.sleep(5)", launch)
    assert_survives_outage(job, 2)


@pytest.mark.parametrize(
    "launch",
    [pytest.param(name, marks=[pytest.mark.soak] * (name != "processes")) for name in LAUNCHES],
    indirect=True,
)
def test_twelve_seconds_without_network_do_no_harm(start_job: StartJob, launch: Launch) -> None:
    """The ranks end during the outage: what their hosts report about it arrives afterwards."""
    job = start_job("import time; print('started', flush=True); time.sleep(3)", launch)
    assert_survives_outage(job, 12)


def assert_survives_outage(job: HostsJob, seconds: float) -> None:
    job.wait_for("started", 4)
    job.part("n2").machine.unplug()
    time.sleep(seconds)
    job.part("n2").machine.plug()
    assert job.wait(60) == [0, 0], job.output()


def assert_lost(job: HostsJob, left: str, victim: str) -> None:
    """The remaining host fails and names the lost host."""
    part = job.part(left)
    report = part.failure()
    assert (report.failure_class, report.host) == (FailureClass.HOST_LOST, victim), report
    assert f"host {victim} was lost" in part.paths.failure.read_text()
    assert part.program.wait(0) == report.exit_code == 1
    assert not part.paths.success.exists()
