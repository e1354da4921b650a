"""The leader of a job without a supervisor sends the notification of the end, and is delayed by seconds only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from notification_servers import Receiver
from pods import RESTART, Pods, wait_until

from cloudtrain.runtime.notifications.rules import HOLD_SECONDS
from cloudtrain.runtime.ports import free_port

TOKEN = "t0ken" + "/B0" * 10
RULES = json.dumps([{"webhook": "$HOOK"}])

FAILS = """
    import os, time
    assert "HOOK" not in os.environ
    if os.environ["RANK"] == "1":
        raise ValueError("no batches left")
    time.sleep(600)
"""


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_the_leader_sends_one_notification_of_a_failure(pods: Callable[..., Pods]) -> None:
    job = pods(FAILS, notify=RULES, dropped_variables="HOOK")
    with Receiver().up() as receiver:
        started = [job.start(number, HOOK=f"{receiver.url}/{TOKEN}") for number in range(2)]
        assert started[0].exit_code() == 1 and started[1].exit_code() == RESTART
    [content] = receiver.contents
    assert content["event"] == "failed" and content["rank"] == 1 and "no batches left" in content["summary"]
    assert not any(TOKEN in pod.text + pod.message.read_text() for pod in started)


def test_a_place_that_is_away_delays_the_end_by_seconds_and_leaves_a_warning(
    pods: Callable[..., Pods],
) -> None:
    job = pods("import time; time.sleep(600)", count=1, notify=RULES, dropped_variables="HOOK")
    leader = job.start(0, HOOK=f"http://127.0.0.1:{free_port()}/{TOKEN}")
    wait_until(lambda: '"phase": "train"' in text_of(leader.paths.events), "the ranks")
    leader.stop()
    began = time.monotonic()
    assert leader.exit_code() == RESTART
    assert time.monotonic() - began < HOLD_SECONDS + 60
    [warning] = [text for text in leader.ending.warnings if "notification" in text]
    assert "was preempted" in warning and "refused" in warning and TOKEN not in warning


def test_a_hang_is_notified_of_while_the_job_runs(pods: Callable[..., Pods]) -> None:
    job = pods(
        "import time; time.sleep(600)", notify=RULES, dropped_variables="HOOK", hang_after=3, on_hang="notice"
    )
    with Receiver().up() as receiver:
        started = [job.start(number, HOOK=f"{receiver.url}/{TOKEN}") for number in range(2)]
        wait_until(lambda: receiver.contents, "the notification", 180)
        assert started[0].process.poll() is None
        [content] = receiver.contents
        assert content["event"] == "hanging" and content["attempt"] == 0
        assert "no sign of life for" in content["summary"] and "train.py:1" in content["summary"]
    assert not any(TOKEN in pod.text for pod in started)
