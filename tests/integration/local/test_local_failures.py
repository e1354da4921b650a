"""Every failure ends the whole job soon, with one report of its cause."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, Run, events, folder, live_processes, wait_for_end, wait_until

from cloudtrain import FailureClass, Job, JobStatus, TrainingFailed
from cloudtrain.runtime.launchers.launch import process_lives

# rank 3, on the second host, ends badly; the others would run for a minute
RANK_3 = """
    import os, signal, sys, time
    print("started", flush=True)
    if os.environ["RANK"] == "3":
        time.sleep(0.3)
        {ending}
    time.sleep(600)
"""

ENDINGS = {
    "exit-5": ("sys.exit(5)", {"exit_code": 5, "failure_class": FailureClass.USER_ERROR}),
    "exit-7": ("raise SystemExit(7)", {"exit_code": 7, "exception_type": None}),
    "exit-text": ("sys.exit('no such model')", {"exit_code": 1, "message": "no such model"}),
    "os-exit": ("print('last line', flush=True); os._exit(9)", {"exit_code": 9, "log_tail": ("started", "last line")}),
    "exception": (
        "raise ValueError('bad\\nthing')",
        {"exit_code": 1, "exception_type": "ValueError", "message": "bad\nthing"},
    ),
    "no-errno": ("raise OSError('no errno')", {"exit_code": 1, "exception_type": "OSError", "message": "no errno"}),
    "kill-9": ("os.kill(os.getpid(), 9)", {"exit_code": 137, "signal": 9, "failure_class": FailureClass.KILLED}),
    "segfault": ("os.kill(os.getpid(), 11)", {"exit_code": 139, "signal": 11}),
    "sigterm": ("os.kill(os.getpid(), 15)", {"exit_code": 143, "signal": 15}),
    "import": ("import nosuch", {"failure_class": FailureClass.IMPORT_ERROR, "exception_type": "ModuleNotFoundError"}),
    "memory": ("raise MemoryError()", {"failure_class": FailureClass.OUT_OF_MEMORY}),
    "data": ("open('/nosuch')", {"failure_class": FailureClass.MISSING_DATA}),
    "disk": ("raise OSError(28, 'No space left on device')", {"failure_class": FailureClass.DISK_FULL}),
    "interrupt": ("raise KeyboardInterrupt", {"exit_code": 130, "exception_type": "KeyboardInterrupt"}),
}  # fmt: skip


def test_a_rank_that_nccl_ended_does_not_hide_the_one_that_failed(run: Run) -> None:
    """NCCL's watchdog prints a C++ error, Python the stacks of all threads, and rank 1 fails a second later."""
    job = run(
        """
        import os, sys, time
        if os.environ["RANK"] == "0":
            print("  what():  [Rank 0] NCCL watchdog thread terminated with exception: NCCL error: remote process "
                  "exited or there was a network error", "frame #0\\n" * 80, sep="\\n", file=sys.stderr, flush=True)
            os.abort()
        time.sleep(1.5)
        raise ValueError("bad sample")
        """,
        distribution=TWO_RANKS,
    )
    assert job.failure
    assert (job.failure.rank, job.failure.message) == (1, "bad sample")


@pytest.mark.parametrize("case", ENDINGS)
def test_one_rank_fails(run: Run, case: str) -> None:
    ending, expected = ENDINGS[case]
    job = run(RANK_3.format(ending=ending), instance_count=2, distribution=TWO_RANKS)
    failure = job.failure
    assert job.status == JobStatus.FAILED
    assert failure
    assert (failure.rank, failure.host) == (3, "algo-2")
    assert {name: getattr(failure, name) for name in expected} == expected
    assert job.describe().exit_code == failure.exit_code
    # both hosts have the same report, none succeeds, and everything ends soon after the first failure
    for outcome in (outcomes := events(job, "outcome")):
        assert (outcome["status"], outcome["exit_code"]) == ("Failed", failure.exit_code)
        assert outcome["time"] - events(job, "rank-ended")[0]["time"] < 30
    assert {outcome["source"] for outcome in outcomes} == {"algo-1", "algo-2"}
    assert job.logs().count("[cloudtrain] rank 3 on algo-2 ") == 1
    for host in ("algo-1", "algo-2"):
        paths = folder(job).host(host)
        assert not paths.success.exists()
        assert paths.failure.read_text().startswith("rank 3 on algo-2 ")
        assert len(paths.failure.read_text()) <= 1024
    assert live_processes(job) == []


def test_the_traceback_contains_only_the_users_frames(run: Run) -> None:
    job = run("def f():\n    raise RuntimeError('x' * 3000)\n\nf()\n")
    failure = job.failure
    assert failure
    script = folder(job).host("algo-1").code / "train.py"
    assert [line.strip() for line in failure.traceback.splitlines()[:4]] == [
        "Traceback (most recent call last):",
        f'File "{script}", line 4, in <module>',
        "f()",
        f'File "{script}", line 2, in f',
    ]
    with pytest.raises(TrainingFailed, match="rank 0 on algo-1 raised RuntimeError: xxx") as caught:
        job.wait()
    assert caught.value.failure == failure


def test_of_two_failures_the_cause_is_reported_and_not_the_consequence(run: Run) -> None:
    job = run(
        """
        import os, time
        if os.environ["RANK"] == "0":
            raise RuntimeError("Connection closed by peer [127.0.0.1]:1234")
        time.sleep(0.2)
        raise ValueError("the cause")
        """,
        distribution=TWO_RANKS,
    )
    failure = job.failure
    assert failure
    assert (failure.rank, failure.exception_type, failure.message) == (1, "ValueError", "the cause")


def test_processes_that_a_rank_started_end_with_it(run: Run) -> None:
    job = run(
        """
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os._exit(3)
        """
    )
    assert job.status == JobStatus.FAILED
    wait_until(lambda: not live_processes(job), "the child's end")


def test_a_script_that_ignores_sigterm_is_killed_when_another_fails(run: Run) -> None:
    job = run(
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.environ["RANK"] == "1":
            time.sleep(0.3)
            raise ValueError("x")
        time.sleep(600)
        """,
        distribution=TWO_RANKS,
    )
    outcome = events(job, "outcome")[0]
    assert outcome["time"] - events(job, "rank-ended")[0]["time"] < 30


@pytest.mark.parametrize(("case", "hosts"), [("kill-9", 2), ("exception", 1)])
def test_failures_under_torchrun(run: Run, case: str, hosts: int) -> None:
    ending, expected = ENDINGS[case]
    job = run(
        RANK_3.format(ending=ending),
        instance_count=hosts,
        distribution={"torch_distributed": {"enabled": True, "processes_per_host": 4 // hosts}},
    )
    failure = job.failure
    assert failure
    assert (failure.rank, failure.host) == (3, f"algo-{hosts}")
    assert {name: getattr(failure, name) for name in expected} == expected
    for outcome in events(job, "outcome"):
        assert (outcome["status"], outcome["exit_code"]) == ("Failed", failure.exit_code)
        assert outcome["time"] - events(job, "rank-ended")[0]["time"] < 30
    assert live_processes(job) == []


def test_the_supervisor_is_killed(run: Run) -> None:
    job = run(
        "import time; print('on'); time.sleep(600)", wait=False, instance_count=2, distribution=TWO_RANKS
    )
    wait_until(lambda: job.logs().count("on") == 4, "four ranks")
    pid = folder(job).read_record().pid
    assert pid
    hosts = [host_pid(job, name) for name in ("algo-1", "algo-2")]
    time.sleep(1)  # the script is silent
    spoken_at = folder(job).log.stat().st_mtime
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(process_lives, (pid, *hosts))), "the end of the supervisor and its hosts")
    wait_until(lambda: not live_processes(job), "the end of all ranks")
    last_life = folder(job).last_life()
    time.sleep(1)  # the first look is later
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert "supervisor of the job is gone" in job.failure.message
    assert last_life
    assert job.describe().ended_at == last_life > spoken_at


@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_a_host_vanishes(run: Run, victim: str) -> None:
    job = run(
        "import time; print('on'); time.sleep(600)", wait=False, instance_count=2, distribution=TWO_RANKS
    )
    wait_until(lambda: job.logs().count("on") == 4, "four ranks")
    os.kill(host_pid(job, victim), signal.SIGKILL)
    wait_for_end(job)
    failure = job.failure
    assert failure
    assert (failure.failure_class, failure.host) == (FailureClass.HOST_LOST, victim)
    assert live_processes(job) == []


def test_a_hung_leader_is_detected_within_the_host_timeout(run: Run) -> None:
    job = run("import time; print('on'); time.sleep(600)", wait=False, instance_count=2, host_timeout=5)
    wait_until(lambda: job.logs().count("on") == 2, "two ranks")
    leader = host_pid(job, "algo-1")
    os.kill(leader, signal.SIGSTOP)
    try:
        failure = folder(job).host("algo-2").failure  # it follows the event of the outcome
        wait_until(failure.exists, "the other host's outcome")
        assert failure.read_text().startswith("train on algo-1: host algo-1 was lost")
    finally:
        os.kill(leader, signal.SIGKILL)
    wait_for_end(job)
    assert job.failure
    assert job.failure.failure_class == FailureClass.HOST_LOST


def host_pid(job: Job, host: str) -> int:
    """The process of the runtime of a host. The supervisor copies its event a moment after it."""
    found: list[int] = []

    def is_known() -> bool:
        found[:] = [int(event["pid"]) for event in events(job, "host") if event["source"] == host]
        return bool(found)

    wait_until(is_known, f"the event of {host}")
    [pid] = found
    return pid


def test_a_host_that_dies_before_it_joins(run: Run) -> None:
    for _ in range(20):  # until a kill comes early enough
        job = run("import time; print('never'); time.sleep(600)", wait=False, instance_count=2)
        wait_until(lambda: folder(job).read_record().pid, "the supervisor")  # noqa: B023
        supervisor = folder(job).read_record().pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
        deadline = time.monotonic() + 120
        while len(hosts := children.read_text().split()) < 2:
            assert time.monotonic() < deadline
        os.kill(int(hosts[1]), signal.SIGKILL)
        wait_for_end(job)
        if all(event["source"] != "algo-2" for event in events(job, "host")):
            break
    failure = job.failure
    assert failure
    assert (failure.failure_class, failure.host) == (FailureClass.HOST_LOST, "algo-2")
    assert "never" not in job.logs()


def test_a_rank_that_leaves_early_with_success_is_named(run: Run) -> None:
    """The message is that of Gloo."""
    job = run(
        """
        import os, time
        if os.environ["RANK"] == "0":
            time.sleep(0.5)
            raise RuntimeError("Connection closed by peer [127.0.0.1]:1")
        """,
        instance_count=2,
        distribution={"processes": {"processes_per_host": 1}},
    )
    failure = job.failure
    assert failure
    assert failure.rank == 0
    assert "rank 1 ended with exit code 0" in failure.hint
