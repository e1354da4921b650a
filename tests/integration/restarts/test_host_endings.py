"""The end of a host: its exit code, and the message in the place that its platform names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pods import RESTART, Pods, wait_until

from cloudtrain.contract import FailureClass, JobStatus
from cloudtrain.contract.ending import LARGEST_ENDING

PASSWORD = "correct horse battery staple"

FAILS = """
    import os, time
    print("loss=0.25", flush=True)
    if os.environ["RANK"] == "1":
        raise SystemExit(7)
    time.sleep(600)
"""


@pytest.mark.parametrize(("code", "expected"), [(RESTART, 7), pytest.param(7, 1, marks=pytest.mark.soak)])
def test_the_leader_alone_ends_with_the_code_of_the_script(
    pods: Callable[..., Pods], code: int, expected: int
) -> None:
    """A script that ends with the very code of a restart has failed all the same."""
    job = pods(FAILS, metric_definitions=(("loss", "loss=(.*)"),), restart_exit_code=code)
    leader, follower = job.start_all()
    assert follower.exit_code() == code
    assert leader.exit_code() == expected
    for pod in (leader, follower):
        ending = pod.ending
        assert ending.status == JobStatus.FAILED
        assert ending.failure is not None
        assert (ending.failure.rank, ending.failure.host, ending.failure.exit_code) == (1, "job-1", 7)
        assert ending.metrics == {"loss": 0.25}
        assert ending.phases.keys() >= {"requirements", "launch"}
        assert 0 < ending.goodput["wall"] < 600


def test_the_message_names_the_cause_and_no_secret(pods: Callable[..., Pods]) -> None:
    job = pods(
        """
        import os
        class Broken(Exception): ...
        raise Broken("cannot log in with " + os.environ["PASSWORD"] + "x" * 20_000)
        """,
        count=1,
        hidden_variables="PASSWORD",
    )
    leader = job.start(0, PASSWORD=PASSWORD)
    assert leader.exit_code() == 1
    assert PASSWORD not in leader.message.read_text()
    assert leader.message.stat().st_size <= LARGEST_ENDING
    failure = leader.ending.failure
    assert failure is not None
    assert failure.exception_type == "Broken"
    assert failure.message.startswith("cannot log in with ***xxx")
    assert failure.traceback.rstrip().endswith("x" * 100)


def test_a_stop_and_an_end(pods: Callable[..., Pods]) -> None:
    """A pod is deleted alone: the whole attempt ends, and none of its hosts counts as a failure."""
    job = pods("import time; print('begun', flush=True); time.sleep(600)")
    leader, follower = job.start_all()
    wait_until(lambda: "begun" in leader.text and "begun" in follower.text, "both ranks")
    follower.stop()
    assert (leader.exit_code(), follower.exit_code()) == (RESTART, RESTART)
    assert leader.ending.status == follower.ending.status == JobStatus.INTERRUPTED
    assert follower.ending.failure is None

    done = pods("print('hello')", count=1).start(0)
    assert done.exit_code() == 0
    assert done.ending.status == JobStatus.COMPLETED
    assert done.ending.goodput["measured_by"] == "script"


@pytest.mark.parametrize(
    ("variable", "value", "code", "why"),
    [
        ("CLOUDTRAIN_STOP_GRACE", "soon", 1, "CLOUDTRAIN_STOP_GRACE='soon' does not have the type"),
        ("CLOUDTRAIN_RESTART_EXIT_CODE", "x", 1, "CLOUDTRAIN_RESTART_EXIT_CODE='x' does not have the type"),
        pytest.param(
            *("CLOUDTRAIN_JOIN_TIMEOUT", "0.3", RESTART, "the leader was not found at"),
            marks=pytest.mark.soak,
        ),
        (
            "CLOUDTRAIN_RENDEZVOUS",
            "job-0.nowhere.invalid:7778",
            RESTART,
            "the leader was not found at job-0.nowhere",
        ),
    ],
)
def test_a_follower_that_does_not_get_far(
    pods: Callable[..., Pods], variable: str, value: str, code: int, why: str
) -> None:
    """Its own mistake counts as a failure; a leader that is not there yet does not."""
    follower = pods("").start(1, **{"CLOUDTRAIN_JOIN_TIMEOUT": "0.5", variable: value})
    assert follower.exit_code() == code
    failure = follower.ending.failure
    assert failure is not None
    assert why in failure.message
    expected = FailureClass.HOST_LOST if code == RESTART else FailureClass.PLATFORM
    assert failure.failure_class == expected


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_does_not_hide_the_cause(pods: Callable[..., Pods]) -> None:
    mount = (
        "cp -r {ml} {ml}.kept; mount -t tmpfs -o size=1m none {ml}; cp -r {ml}.kept/. {ml}; "
        'dd if=/dev/zero of={ml}/filler bs=4k 2>/dev/null || true; exec "$@"'
    )
    job = pods("raise SystemExit(3)", count=1)
    ml = job.folder / "pod-0" / "ml"
    leader = job.start(0, wrapper=("unshare", "-m", "sh", "-ec", mount.format(ml=ml), "sh"))
    assert leader.exit_code() == 1
    failure = leader.ending.failure
    assert failure is not None
    assert failure.failure_class == FailureClass.DISK_FULL


def test_a_host_that_is_lost_over_and_over_ends_the_job(pods: Callable[..., Pods], tmp_path: Path) -> None:
    """Also if the leader knows that before its own runtime has joined."""
    kept = tmp_path / "out" / "running-time.json"
    job = pods(
        "import time\ntime.sleep(300)", count=1, max_preemptions=0, output_uri=f"file://{tmp_path}/out"
    )
    lost = job.start(0)
    wait_until(kept.exists, "the first attempt")
    lost.kill()
    for _ in range(2):  # its platform may start it again: it ends again
        last = job.start(0)
        assert last.exit_code() == 124
        assert last.ending.status == JobStatus.INTERRUPTED
        assert last.ending.failure is not None
        assert last.ending.failure.failure_class == FailureClass.PREEMPTED


def test_the_same_failure_after_the_same_step_ends_the_job(pods: Callable[..., Pods], tmp_path: Path) -> None:
    """Although its message differs; only the leader says so."""
    script = """
        import os, time
        import cloudtrain
        for step in range(4):
            cloudtrain.log({"loss": 1.0}, step=step)
        if os.environ["RANK"] == "1":
            raise KeyError(f"no {id(object())} at {time.time()} in {os.getpid()}")
        time.sleep(600)
    """
    job = pods(script, output_uri=f"file://{tmp_path}/out", max_preemptions=9, max_run=3600.0)
    assert sorted(pod.exit_code() for pod in job.start_all()) == [1, RESTART]
    leader, other = job.start_all()
    assert (leader.exit_code(), other.exit_code()) == (124, RESTART)
    failure = leader.ending.failure
    assert failure is not None
    why = "the same failure happened twice after step 3: KeyError in <module> at train.py:7"
    assert failure.hint.endswith(f"It does not restart: {why}.")
