"""A script may leave anything in place of what its host reads at the end, or before it restarts."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Paths
from cloudtrain.runtime.ending import write_ending
from cloudtrain.runtime.outcome import HostOutcome
from cloudtrain.runtime.restarted import earlier_failure


def test_a_pipe_in_place_of_the_events_does_not_keep_a_pod_from_ending(tmp_path: Path) -> None:
    paths, message = Paths(tmp_path / "ml"), tmp_path / "message"
    paths.make()
    os.mkfifo(paths.events)
    environ = {"CLOUDTRAIN_TERMINATION_MESSAGE": str(message)}
    write_ending(HostOutcome(JobStatus.COMPLETED), paths, time.time(), environ)
    assert json.loads(message.read_text())["status"] == "Completed"


def test_a_pipe_in_place_of_the_failure_report_does_not_keep_a_container_from_starting(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path / "ml")
    paths.make()
    os.mkfifo(paths.failure_report)
    assert earlier_failure(paths, {"CLOUDTRAIN_RETRIES_IN_PLACE": "0"}) is None


def test_a_pipe_in_place_of_the_count_of_failures_does_not_keep_a_container_from_starting(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path / "ml")
    paths.make()
    paths.failure_report.write_text(FailureReport(FailureClass.USER_ERROR, "boom").to_json())
    os.mkfifo(paths.output / "failures")
    environ = {"CLOUDTRAIN_RETRIES_IN_PLACE": "1"}
    assert earlier_failure(paths, environ) is None
    outcome = earlier_failure(paths, environ)
    assert outcome and outcome.failure and outcome.failure.message == "boom"
