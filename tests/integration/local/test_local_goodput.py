"""The goodput of real jobs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from click.testing import CliRunner
from local_jobs import Run, wait_until

from cloudtrain.cli.jobs import describe
from cloudtrain.contract import JobStatus
from cloudtrain.job import Job
from cloudtrain.observe import Goodput
from cloudtrain.observe.step_meter import StepMeter
from cloudtrain.observe.summary import Summary
from cloudtrain.platforms import Events
from cloudtrain.runtime.supervisor.event_summary import EventSummary
from cloudtrain.runtime.supervisor.folder import JobFolder

KILLED_ONCE = """
    import os, signal, time

    from cloudtrain.checkpoint import Checkpointer

    checkpoints = Checkpointer(every=10)
    restored = checkpoints.restore()
    first = restored.step + 1 if restored else 1
    for step in range(first, 61):
        time.sleep(0.05)
        checkpoints.maybe_save(step, {"step": step})
        if step % 10 == 0:
            checkpoints.wait()
        if step == 39 and os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
            time.sleep(1.5)  # the end of the interval
            checkpoints.save(40, {"step": 40})
            checkpoints.wait()
            time.sleep(1 if os.environ["RANK"] == "0" else 600)  # rank 0 has saved step 40 when it is killed
            os.kill(os.getpid(), signal.SIGKILL)
    checkpoints.close()
"""


def events_of(job: Job, kind: str) -> list[dict[str, Any]]:
    assert isinstance(job.platform, Events)
    return [event for event in job.platform.events(job.name) if event["event"] == kind]


def test_a_restart_is_lost_time_and_steps_before_the_checkpoint_are_not(run: Run) -> None:
    job = run(KILLED_ONCE, distribution={"processes": {"processes_per_host": 2}}, max_retry_attempts=1)
    assert job.status == JobStatus.COMPLETED, job.logs()
    found = job.describe().goodput
    assert found is not None
    assert found.measured_by == "steps"
    assert math.isclose(found.productive + sum(found.lost.values()), found.wall, abs_tol=0.01)
    assert found.lost["restart"] > 1.0, found  # at least the second before the kill
    # 59 intervals of at least 0.05 s, and the 1.5 s before the save; the first step of each attempt counts as start
    assert found.productive > 3.5, (found, events_of(job, "step"))
    [event] = events_of(job, "goodput")
    fields = ("goodput", "wall", "productive", "lost", "measured_by")
    assert Goodput(**{field: event[field] for field in fields}) == found
    steps = events_of(job, "step")
    assert (steps[0]["step"], steps[-1]["step"]) == (1, 60)
    assert [event["step"] for event in events_of(job, "restored")] == [None, 40]
    shown = CliRunner().invoke(describe, [job.name])
    assert f"time          steps {found.productive:.1f} s, " in shown.stdout
    record = json.loads(CliRunner().invoke(describe, [job.name, "--json"]).stdout)
    assert record["goodput"]["lost"] == found.lost


@pytest.mark.parametrize("reports", [False, True])
def test_a_script_without_checkpoints_has_a_goodput_too(run: Run, reports: bool) -> None:
    report = "report_step(number)" if reports else ""
    job = run(
        f"""
        import time
        from cloudtrain.observe import report_step
        for number in range(10):
            time.sleep(0.05)
            {report}
        """
    )
    found = job.describe().goodput
    assert found is not None
    assert found.measured_by == ("steps" if reports else "script")
    assert found.productive >= 0.44
    assert found.goodput == pytest.approx(found.productive / found.wall, abs=1e-3)


MANY_METRICS = """
    import json
    from cloudtrain.contract import Paths

    events = Paths.from_environ().events
    with open(events, "a") as file:
        for number in range(40_000):
            event = {"time": 1.5, "source": "algo-1", "event": "metric", "name": "loss", "value": number, "rank": 0}
            file.write(json.dumps(event) + "\\n")
    [folder] = [parent for parent in events.parents if (parent / "state.json").exists()]
    (folder / "summary.json").write_text("CONTENT")
"""


def test_a_job_with_many_metrics_leaves_a_summary_for_its_first_reader(run: Run) -> None:
    """The supervisor does not read a summary that the script has written."""
    of_another = (
        EventSummary(summary=Summary(metrics={"loss": 1.0}, steps=StepMeter(step=7))).to_json().decode()
    )
    job = run(MANY_METRICS.replace('"CONTENT"', repr(of_another)), wait=False)
    folder = JobFolder.of("local", job.name)
    # a reader of the running job would replace the summary too
    wait_until(lambda: folder.read_record().status.is_final, "the end of the job")
    assert job.status == JobStatus.COMPLETED, job.logs()
    found = EventSummary.from_json((folder.path / "summary.json").read_bytes())
    assert (found.summary.metrics, found.summary.steps.step) == ({"loss": 39_999.0}, None)
    assert folder.events.stat().st_size - found.mark.position < 2000  # the goodput, and the end of the job
    assert job.describe().metrics == {"loss": 39_999.0}
