"""The stacks of the ranks of real jobs: on request, and before ranks that hang are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, Run, folder, wait_for_end, wait_until

from cloudtrain._display.view import look_at
from cloudtrain.errors import PlatformError
from cloudtrain.observe.stacks import StackDump
from cloudtrain.platforms.local import LocalPlatform

WAITS = """
import os, sys
def load(path):
    print("ready", flush=True)
    open(path).read()
def train(path):
    print("ready", flush=True)
    open(path).read()
if os.environ["RANK"] == "2":
    load(sys.argv[1])
else:
    train(sys.argv[1])
"""


def test_two_hosts(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"  # like a file system that does not answer
    os.mkfifo(pipe)
    job = run(WAITS, wait=False, instance_count=2, distribution=TWO_RANKS, arguments=[str(pipe)])
    wait_until(lambda: job.logs().count("ready") == 4, "the ranks")
    dumps: list[StackDump] = []

    def are_blocked() -> bool:  # and not on their way from the line before
        dumps.append(job.stacks())
        return [group.where for group in dumps[-1].groups] == ["load at train.py:5", "train at train.py:8"]

    wait_until(are_blocked, "all ranks in open()")
    dump = dumps[-1]
    odd, others = dump.groups
    assert (dump.ranks, dump.silent, dump.why) == (4, (), "")
    assert (odd.ranks, odd.where, odd.hosts) == ("2", "load at train.py:5", ("algo-2",))
    assert odd.stack == "load (train.py:5)\n<module> (train.py:10)"
    assert (others.ranks, others.count, others.hosts) == ("0-1,3", 3, ("algo-1", "algo-2"))
    assert others.where == "train at train.py:8"

    [record] = (folder(job).host("algo-1").base / "run").glob("*/rank-1.json")
    pid = json.loads(record.read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    stopped = [group for group in job.stacks().groups if group.state]
    assert [(group.ranks, group.state) for group in stopped] == [("1", "stopped by a signal")]
    os.kill(pid, signal.SIGCONT)

    command = [sys.executable, "-m", "cloudtrain", "stacks", job.name]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "\nrank 2 on algo-2: load at train.py:5\n  load (train.py:5)\n  <module>" in shown
    assert "\n3 ranks (0-1,3): train at train.py:8\n" in shown

    pipe.write_text("")  # all of them go on
    wait_for_end(job)
    assert (job.status, job.failure) == ("Completed", None)
    last = LocalPlatform().last_stacks(job.name)
    assert last
    assert look_at(job.platform, job.name).stacks == last
    with pytest.raises(PlatformError, match="is Completed: it has no running ranks"):
        job.stacks()


def test_before_ranks_that_hang_are_ended(run: Run) -> None:
    """Also if the script handles SIGQUIT."""
    job = run(
        """
        import os, pathlib, signal, time
        from cloudtrain.observe import beat
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        def wait():
            time.sleep(600)
        def load():
            time.sleep(600)
        started = pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"])
        (started / os.environ["RANK"]).touch()
        while len(os.listdir(started)) < 3:
            time.sleep(0.02)
        beat()
        load() if os.environ["RANK"] == "1" else wait()
        """,
        distribution={"processes": {"processes_per_host": 3}},
        hang_timeout=4,
    )
    dump = LocalPlatform().last_stacks(job.name)
    assert dump
    assert dump.why == "before ranks that hang were ended"
    assert [(group.ranks, group.where) for group in dump.groups] == [
        ("1", "load at train.py:8"),
        ("0,2", "wait at train.py:6"),
    ]
    assert job.failure
    assert "in load" in job.failure.stacks


def test_before_ranks_that_ignore_a_stop_are_killed(run: Run) -> None:
    job = run(
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def save():
            time.sleep(600)
        print("ready", flush=True)
        save()
        """,
        wait=False,
        stop_grace=2,
    )
    wait_until(lambda: "ready" in job.logs(), "the rank")
    job.stop()
    wait_for_end(job)
    dump = LocalPlatform().last_stacks(job.name)
    assert dump
    assert dump.why == "before ranks that did not end within the grace were killed"
    assert [group.where for group in dump.groups] == ["save at train.py:5"]
