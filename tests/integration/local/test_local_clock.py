"""A step of the machine's clock changes nothing: no time is up, no rank hangs, no host is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, Run, wait_for_end, wait_until
from stepped_clock import write_clock

from cloudtrain import JobStatus
from cloudtrain._display.view import duration

BEATS = """
    import os, time
    from cloudtrain.observe import beat
    print("ready", flush=True)
    while not os.path.exists(os.environ["GO"]):
        beat()
        time.sleep(0.05)
"""


@pytest.mark.parametrize("seconds", [86400, -86400], ids=["ahead", "back"])
def test_a_step_of_the_clock_does_not_end_a_job(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    step = tmp_path / "step"
    write_clock(tmp_path, step)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = run(
        BEATS,
        wait=False,
        instance_count=2,
        distribution=TWO_RANKS,
        max_run=3600,
        hang_timeout=30,
        stop_grace=5,
        environment={"GO": str(tmp_path / "go")},
    )
    wait_until(lambda: job.logs().count("ready") == 4, "four ranks")
    step.write_text(str(seconds))
    set_clock = time.time
    monkeypatch.setattr("time.time", lambda: set_clock() + seconds)  # the client's, too
    live = job.describe()
    assert live.status == JobStatus.RUNNING
    assert live.goodput and 0 < live.goodput.wall < 1800
    assert 0 < (duration(live, time.time()) or 0) < 1800
    way = "ahead" if seconds > 0 else "back"
    said = f"was set {way} by 86400 s"
    wait_until(lambda: any(said in warning for warning in job.describe().warnings), "the warning")
    time.sleep(3)  # for what a step of the clock could end
    (tmp_path / "go").touch()
    wait_for_end(job)
    found = job.describe()
    assert job.status == JobStatus.COMPLETED, (job.failure, found.reason)
    assert found.started_at
    assert found.ended_at
    assert 0 < found.ended_at - found.started_at < 1800
    assert found.goodput
    assert 0.1 < found.goodput.goodput <= 1
    assert found.goodput.wall < 1800
    assert [warning for warning in found.warnings if said in warning], found.warnings
