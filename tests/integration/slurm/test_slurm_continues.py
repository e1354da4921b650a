"""A training on a real Slurm that is interrupted resumes from what it saved, in another submission of the same job."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.errors import TrainingFailed
from cloudtrain.observe.events import read_events

SCRIPT = """
import json, os, sys, time
from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

rank, folder = os.environ["RANK"], os.environ["SEEN"]
checkpointer = Checkpointer(every=10)
checkpoint = checkpointer.restore()
first, total = (checkpoint.step + 1, int(checkpoint.state["total"])) if checkpoint else (1, 0)
print("starts at", first, os.environ["WANDB_RUN_ID"], os.environ["A_TOKEN"], flush=True)
last = int(os.environ["LAST"])
for step in range(first, last + 1):
    total += step
    time.sleep(0.1 if first == 1 else 0)
    if checkpointer.maybe_save(step, {"total": total}) and rank == "0":
        checkpointer.wait()
        with open(folder + ".new", "w") as file:
            file.write(str(step))
        os.replace(file.name, folder)
    environment.exit_if_preempted()
print("total", total, flush=True)
"""
LAST = 3000
"""Five minutes of steps: the first attempt never gets there."""
SHORT = 61
"""Seconds until a short time limit: the job begins to end a third of the limit before it."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path))
    (tmp_path / "train.py").write_text(SCRIPT)
    yield tmp_path


def submit(home: Path, *, name: str = "trained", **options: Any) -> Job:
    return Estimator(
        str(home / "train.py"),
        platform="slurm",
        instance_count=2,
        distribution={"processes": {"processes_per_host": 1}},
        environment={"A_TOKEN": "hf_s3cret", "SEEN": str(home / "seen"), "LAST": str(LAST)},
        platform_options={"partition": "main", "exclusive": True, "poll_seconds": 1, **options},
        stop_grace=20,
    ).fit(wait=False, job_name=name)


def wait_until(is_true: Callable[[], object], patience: float = 90) -> None:
    deadline = time.monotonic() + patience
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def numbers(home: Path) -> list[str]:
    document = json.loads((home / "jobs" / "slurm" / "trained" / "batch.json").read_text())
    return [entry["number"] for entry in document["submissions"]]


def begun(job: Job, home: Path) -> int:
    """Wait until the training has saved something. Returns Slurm's number of the job."""
    wait_until(lambda: (home / "seen").exists())
    return int(numbers(home)[0])


def check(job: Job, home: Path, *, attempts: int = 2) -> None:
    """The job has completed in ``attempts``, each from the last step that the one before had saved."""
    described = job.describe()
    lines = [
        line for line in job.logs().splitlines() if line.startswith(("[rank 0] starts", "[rank 0] total"))
    ]
    assert described.status == JobStatus.COMPLETED, job.logs()
    assert described.attempt == attempts - 1
    starts = [line.split() for line in lines if "starts at" in line]
    assert len(starts) == attempts
    assert [int(words[4]) for words in starts][1] > 1
    assert len({words[5] for words in starts}) == 1, "one identity for trackers"
    assert {words[6] for words in starts} == {"hf_s3cret"}
    assert lines[-1] == f"[rank 0] total {LAST * (LAST + 1) // 2}"
    folder = home / "jobs" / "slurm" / "trained"
    restored = [
        event["step"] for event in read_events(folder / "events.jsonl") if event["event"] == "restored"
    ]
    assert None in restored
    wait_until(lambda: not (folder / "secrets.json").exists())
    assert any(f"attempt {attempts}: Slurm job" in line for line in job.logs().splitlines())
    assert described.goodput
    queue = described.goodput.lost["queue"]
    assert queue > (described.started_at or 0) - described.submitted_at + 0.1, (
        "also the time in the queue again"
    )


@pytest.mark.soak
def test_a_time_limit(slurm: SlurmCluster, home: Path) -> None:
    job = submit(home)
    number = begun(job, home)
    seen = int((home / "seen").read_text())
    slurm.expire(number, SHORT)
    wait_until(lambda: job.describe().status == JobStatus.PENDING, patience=200)
    follow = list(job.follow())
    check(job, home)
    assert any("total" in line for line in follow), "logs -f continues across submissions"
    assert int((home / "seen").read_text()) >= seen
    assert numbers(home) == [str(number)]


@pytest.mark.parametrize("mode", ["cancels", "requeues"])
def test_a_preemption(mode: str, request: pytest.FixtureRequest, home: Path) -> None:
    cluster: SlurmCluster = request.getfixturevalue(f"slurm_{mode}")
    job = submit(home)
    number = begun(job, home)
    urgent = cluster.submit("sleep 1", "-N2", "--exclusive", "-purgent")
    job.wait()
    check(job, home)
    events = read_events(home / "jobs" / "slurm" / "trained" / "events.jsonl")
    assert any(event["event"] == "notice" for event in events)
    ended = next(event for event in events if event["event"] == "rank-ended" and event["rank"] == 0)
    assert ended["exit_code"] == 75, f"the rank did not have its grace to save\n{job.logs()}"
    assert cluster.state(urgent) == "COMPLETED"
    assert numbers(home) == [str(number)]


def test_a_requeue_whose_answer_is_lost(slurm: SlurmCluster, home: Path) -> None:
    """The job is not submitted a second time."""
    scontrol = home / "commands" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(
        f"""#!/bin/sh\ntrap "" TERM; {shutil.which("scontrol")} "$@" || exit
        [ $1 != requeue ] || {{ echo "slurm_requeue error: Socket timed out on send/recv operation" >&2; exit 1; }}\n"""
    )
    scontrol.chmod(0o755)
    job = submit(home, prologue=[f"export PATH={scontrol.parent}:$PATH"])
    number = begun(job, home)
    job.preempt()
    job.wait()
    check(job, home)
    assert numbers(home) == [str(number)]


def nodes_with(home: Path, *commands: str) -> dict[str, Any]:
    """Options for nodes that have only these commands of Slurm."""
    folder = home / "commands"
    folder.mkdir()
    for name in ("srun", "env", "head", "sha256sum", *commands):
        (folder / name).symlink_to(shutil.which(name) or name)
    return {"prologue": [f"export PATH={folder}"], "python": sys.executable}


@pytest.mark.soak
@pytest.mark.parametrize("commands", [["scontrol"], ["sbatch"], [], ["chain"]], ids=" ".join)
def test_the_commands_on_the_nodes(
    commands: list[str], slurm: SlurmCluster, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job continues with any of them; with none, as soon as someone looks at it, or by a chain."""
    is_chain = commands == ["chain"]
    more: dict[str, Any] = {"requeue": "chain", "max_preemptions": 3} if is_chain else {}
    job = submit(home, **nodes_with(home, *(commands if not is_chain else [])), **more)
    number = begun(job, home)
    job.preempt()
    job.wait()
    check(job, home)
    first, *others = numbers(home)
    assert first == str(number) or is_chain
    if is_chain:
        assert len(others) == 3
        assert {slurm.wait(int(other)) for other in others[1:]} == {"CANCELLED"}
    else:
        assert len(others) == (commands == ["sbatch"])
    assert slurm("squeue", "--noheader") == ""


@pytest.mark.soak
def test_a_job_that_fails_leaves_nothing_of_its_chain(slurm: SlurmCluster, home: Path) -> None:
    (home / "train.py").write_text("raise ValueError('as asked')")
    for name, more in {"with-scancel": {}, "without": nodes_with(home)}.items():
        job = submit(home, name=name, requeue="chain", max_preemptions=2, **more)
        with pytest.raises(TrainingFailed, match="as asked"):
            job.wait()
        wait_until(lambda: slurm("squeue", "--noheader") == "")
        assert job.describe().attempt == 0


@pytest.mark.soak
@pytest.mark.parametrize("node", ["127.0.0.2", "127.0.0.3"])
def test_a_node_is_lost(node: str, slurm: SlurmCluster, home: Path) -> None:
    """Slurm puts the job into the queue again itself, whether the node of the batch step or another one is lost."""
    job = submit(home)
    number = begun(job, home)
    slurm.set_down(node)
    wait_until(lambda: slurm.state(number) == "PENDING")
    assert not job.status.is_final
    slurm.run("scontrol", "update", f"nodename={node}", "state=resume")  # its slurmd may have brought it back
    job.wait()
    check(job, home)
    assert numbers(home) == [str(number)]


@pytest.mark.soak
def test_every_submission_gets_a_notice(slurm: SlurmCluster, home: Path) -> None:
    (home / "train.py").write_text(SCRIPT.replace("if first == 1 else 0", "if first < 600 else 0"))
    job = submit(home)
    number = begun(job, home)
    slurm.expire(number, SHORT)
    wait_until(lambda: "preemption 1 of" in job.logs(), patience=200)
    slurm("scontrol", "update", f"jobid={number}", "TimeLimit=60")
    wait_until(lambda: "attempt 2" in job.logs() and job.status == JobStatus.RUNNING)
    time.sleep(2)
    slurm.expire(number, SHORT)
    # also the first of its budget: the training has made progress since
    wait_until(lambda: job.logs().count("preemption 1 of") == 2, patience=200)
    job.wait()
    check(job, home, attempts=3)
