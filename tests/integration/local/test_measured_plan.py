"""A plan from a short run of the job itself, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.cli import _measured_run as measuring
from cloudtrain.errors import InvalidJob
from cloudtrain.index import list_jobs
from cloudtrain.job import Job

SCRIPT = """
import time
from cloudtrain.observe import report_step
for step in range(1, 10_000):
    time.sleep(0.05)
    report_step(step, total_steps=9_999)
"""


@pytest.fixture
def fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(measuring, "ENOUGH_SECONDS", 2.0)
    (tmp_path / "train.py").write_text(SCRIPT)
    checkpoints = (tmp_path / "checkpoints").as_uri()
    options = {"processes": {"processes_per_host": 2}}
    return {
        "entry_point": str(tmp_path / "train.py"),
        "distribution": options,
        "job_name": "long-run",
        "checkpoint_s3_uri": checkpoints,
    }


def test_a_run_is_stopped_after_some_steps_and_leaves_the_name_of_the_job_free(
    fields: dict[str, object], tmp_path: Path
) -> None:
    found = measuring.measure(fields)
    assert (found.ranks, found.hosts, found.total_steps) == (2, 1, 9_999)
    assert 0.05 <= found.step < 30  # a busy machine sleeps longer
    [entry] = list_jobs()
    ended = Job.attach(entry.name).describe()
    assert entry.name.startswith("plan-") and ended.status.is_final
    assert ended.step is not None and measuring.ENOUGH_STEPS <= ended.step < 1000
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_that_fails_or_reports_no_steps_is_one_error(fields: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise ValueError('no data')")
    with pytest.raises(InvalidJob, match=r"the measured run .* failed: .*ValueError: no data"):
        measuring.measure(fields)
    (tmp_path / "train.py").write_text("print('done')")
    with pytest.raises(InvalidJob, match="has not reported 2 steps"):
        measuring.measure(fields)


def test_only_platforms_that_cost_nothing_are_measured_on(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidJob, match="--measure runs the job on local or hosts, not on container"):
        measuring.measure({**fields, "platform": "container", "image_uri": "nosuch:1"})
    assert not [*list_jobs()]
