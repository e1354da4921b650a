"""Answers of qstat, as recorded: from the documentation of the schedulers, their sources, and public outputs."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.queue import MOST_ABSENCES
from cloudtrain.platforms.batch.scheduler import ENDED, RUNNING, WAITING, BatchQueue, QueueEntry
from cloudtrain.platforms.batch.shell import LocalShell
from cloudtrain.platforms.pbs import platform
from cloudtrain.platforms.pbs.platform import parse_cobalt, parse_full

PBS_PRO = """\
Job Id: 1042.pbs01
    Job_Name = train
    Job_Owner = ada@login1
    job_state = Q
    queue = workq
    server = pbs01
    Output_Path = login1:/home/ada/a: job/tra
\tin/scheduler.log
    qtime = Mon Nov  2 09:31:07 2026
    comment = Not Running: Insufficient amount of resource: ngpus (R: 4 A: 0 T:
\t8)
    Resource_List.ncpus = 16
    Resource_List.select = 2:ncpus=8:ngpus=4:mpiprocs=1
    substate = 10
    Variable_List = PBS_O_HOME=/home/ada,PBS_O_LANG=C.UTF-8,
\tPBS_O_LOGNAME=ada,PBS_O_QUEUE=workq

Job Id: 1041.pbs01
    Job_Name = train
    job_state = F
    exec_host = n1/0*8+n2/0*8
    comment = Job run at Mon Nov 02 at 09:31 on (n1:ncpus=8)+(n2:ncpus=8) and exc
\teeded resource walltime
    Exit_status = -29

Job Id: 1040.pbs01
    job_state = R
"""
TORQUE = """\
Job Id: 548.moab
    Job_Name = STDIN
    Job_Owner = fred@moab
    job_state = C
    queue = batch
    exec_host = n003/0-1
    Resource_List.nodes = 1:ppn=2
    exit_status = -11
    Variable_List = PBS_O_QUEUE=batch,PBS_O_HOME=/home/fred,PBS_O_LOGNAME=fred,
\tPBS_O_PATH=/usr/local/bin:/opt/moab/bin

"""
SLURM_AS_TORQUE = """\
Job Id:\t7
\tJob_Name = train
\tJob_Owner = root@host
\tjob_state = Q
\tqueue = main
\tResource_List.walltime = 01:00:00

"""
COBALT = """\
JobID   State      User  JobName  OutputPath
=============================================================
101234  queued     ada   train    /lus/ada/my jobs/train/scheduler.log
101235  running    ada   N/A      /lus/ada/a/scheduler.log
101236  user_hold  ada   b        /lus/ada/b/scheduler.log
101237  exiting    bob   c        /lus/bob/c/scheduler.log
"""


def test_pbs_professional() -> None:
    assert parse_full(PBS_PRO) == {
        "1042": QueueEntry(
            WAITING,
            "Not Running: Insufficient amount of resource: ngpus (R: 4 A: 0 T:8)",
            None,
            "train",
            "ada",
            "/home/ada/a: job/train",
            time.mktime((2026, 11, 2, 9, 31, 7, 0, 0, -1)),
        ),
        "1041": QueueEntry(
            ENDED,
            "Job run at Mon Nov 02 at 09:31 on (n1:ncpus=8)+(n2:ncpus=8) and exceeded resource walltime",
            -29,
            "train",
        ),
        "1040": QueueEntry(RUNNING),
    }


def test_torque() -> None:
    assert parse_full(TORQUE) == {"548": QueueEntry(ENDED, "", -11, "STDIN", "fred")}


def test_slurm_with_the_commands_of_torque() -> None:
    assert parse_full(SLURM_AS_TORQUE) == {
        "7": QueueEntry(WAITING, "it waits for resources", None, "train", "root")
    }


def test_cobalt() -> None:
    assert parse_cobalt(COBALT) == {
        "101234": QueueEntry(WAITING, "it waits for nodes", None, "train", "ada", "/lus/ada/my jobs/train"),
        "101235": QueueEntry(RUNNING, "", None, "N/A", "ada", "/lus/ada/a"),
        "101236": QueueEntry(WAITING, "you hold it: release it with qrls", None, "b", "ada", "/lus/ada/b"),
        "101237": QueueEntry(RUNNING, "it is ending", None, "c", "bob", "/lus/bob/c"),
    }


@pytest.mark.parametrize(
    "text", ["", "\n\n", "qstat: cannot connect to server", "Job Id:", "Job Id: 1\n  job_state = ?"]
)
def test_anything_else_raises_nothing(text: str) -> None:
    assert all(entry.state == RUNNING for entry in parse_full(text).values())
    assert parse_cobalt(text) == {}


def test_one_qstat_for_all_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qstat = tmp_path / "qstat"
    text = SLURM_AS_TORQUE.replace("root@", f"{getpass.getuser()}@")
    others = SLURM_AS_TORQUE.replace("root@", "someone@").replace("7", "8")
    (tmp_path / "answer").write_text(text + others)
    qstat.write_text(
        f"#!/bin/sh\n[ $# -gt 1 ] && exit 153\necho x >> {tmp_path}/calls\ncat {tmp_path}/answer\n"
    )
    qstat.chmod(0o755)
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    shell = LocalShell({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    queues = [BatchQueue(platform.TORQUE, shell) for _ in range(3)]  # each as in its own process
    for queue in queues * 3:
        assert queue.look("7", 1.0).row
        assert not queue.look("8", 1.0).is_alive  # of another user
    assert (tmp_path / "calls").read_text() == "x\n"
    queues[0].expire()
    assert queues[0].look("7", 1.0).is_alive
    assert (tmp_path / "calls").read_text() == "x\nx\n"


@pytest.mark.parametrize("source", ["all", "one"])
def test_absences_before_a_job_was_seen_again_do_not_count(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sometimes leaves a job out, without an error."""
    all_jobs, one_job, qstat = tmp_path / "all", tmp_path / "one", tmp_path / "qstat"
    qstat.write_text(f'#!/bin/sh\n[ "$1" = -f ] && [ $# = 2 ] && exec cat {one_job}\nexec cat {all_jobs}\n')
    qstat.chmod(0o755)
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    queue = BatchQueue(platform.TORQUE, LocalShell({"PATH": f"{tmp_path}:/usr/bin:/bin"}))
    text = SLURM_AS_TORQUE.replace("root@", f"{getpass.getuser()}@")
    for answer in range(1, 3 * MOST_ABSENCES):
        is_seen = answer % MOST_ABSENCES == 0
        all_jobs.write_text(text if is_seen and source == "all" else "")
        one_job.write_text(text if is_seen and source == "one" else "")
        assert queue.look("7", 1.0).is_alive, answer
        queue.expire()
    assert not queue.look("7", 1.0).is_alive  # the sixth in a row


def test_a_missing_command_ends_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell says that it does not find qstat, as the scheduler does of a job."""
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    (tmp_path / "id").symlink_to("/usr/bin/id")
    queue = BatchQueue(platform.PBS, LocalShell({"PATH": str(tmp_path)}))
    assert queue.look("7", 1.0).is_alive
    with pytest.raises(PlatformError, match=r"qstat failed: .*not found"):
        queue.check()
