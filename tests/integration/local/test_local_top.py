"""``cloudtrain top`` in a real terminal, with real jobs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from command import CLOUDTRAIN
from local_jobs import TWO_RANKS, Run, folder
from terminal import terminal

from cloudtrain.runtime.supervisor.record import RECORD

SCRIPT = """
    import time

    import cloudtrain

    for step in range(1, 100_000):
        cloudtrain.log(step=step, total_steps=100_000, loss=1 / step)
        time.sleep(0.05)
"""


def test_a_job_of_two_ranks_is_shown_live(run: Run, tmp_path: Path) -> None:
    job = run(SCRIPT, wait=False, job_name="watched", distribution=TWO_RANKS)
    with terminal([CLOUDTRAIN, "top", "watched"], os.environ) as screen:
        text = screen.wait_for("of 100,000", "steps/s", "loss", "phases", "q quit")
        assert "watched  on local  Running  train" in text
        [host] = [line for line in text.splitlines() if line.startswith("algo-1")]
        assert host.split()[1:3] == ["0-1", "train"]
        screen.resize(36, 12)
        screen.wait_until(lambda text: "watched" in text and "q quit" in text.split("\n")[11])
        screen.resize(100, 30)
        screen.wait_until(lambda text: "watched" in text and "q quit" in text.split("\n")[29])
        record = folder(job).path / RECORD
        os.rename(record, tmp_path / "away")  # as if the platform did not answer
        screen.wait_for("as of", "watched  on local")
        os.rename(tmp_path / "away", record)
        screen.wait_until(lambda text: "as of" not in text)
        job.stop()
        screen.wait_for("Stopped")
        screen.press("q")
        assert screen.wait_for_end() == 0
        assert screen.is_restored
    with terminal([CLOUDTRAIN, "top"], {**os.environ, "NO_COLOR": "1"}) as screen:
        screen.wait_for("No job runs")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.wait_for_end() == -signal.SIGTERM
        assert screen.is_restored
        assert b"\x1b[3" not in screen.output  # a colour


def test_a_job_is_chosen_with_the_arrow_keys(run: Run) -> None:
    run(SCRIPT, wait=False, job_name="first")
    run(SCRIPT, wait=False, job_name="second")
    with terminal([CLOUDTRAIN, "top"], os.environ, columns=140) as screen:
        text = screen.wait_until(lambda text: "first" in text and text.count(" train ") == 2)
        assert "▸ second" in text
        screen.press("\x1b[B")
        screen.wait_for("▸ first")
        screen.press("\r")
        screen.wait_for("first  on local  Running  train")
        screen.press("\x1b")
        screen.wait_for("▸ first", "  second")
        screen.press("\x03")
        assert screen.wait_for_end() == 0
        assert screen.is_restored
