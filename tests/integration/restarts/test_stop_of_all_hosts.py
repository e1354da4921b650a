"""A stop whose signal each host receives: none of them waits for the leader's answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from pods import Pods, wait_until

SAVES = """
    import signal, sys, time
    def save(*_):
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("begun", flush=True)
    time.sleep(600)
"""


def test_ranks_are_stopped_while_the_leader_does_not_answer(pods: Callable[..., Pods]) -> None:
    job = pods(SAVES, restart_exit_code=0, host_timeout=300.0)
    leader, follower = job.start_all()
    wait_until(lambda: "begun" in leader.text and "begun" in follower.text, "both ranks")
    os.kill(leader.process.pid, signal.SIGSTOP)
    follower.stop()
    wait_until(lambda: "saved" in follower.text, "the rank of the follower")
    os.kill(leader.process.pid, signal.SIGCONT)
    leader.stop()
    assert (leader.exit_code(), follower.exit_code()) == (143, 143)
    assert "saved" in leader.text
