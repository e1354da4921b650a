"""A leader that fails before it can listen: the supervisor ends the hosts that wait for it."""

from __future__ import annotations

import time
from pathlib import Path

from supervised_programs import run_programs

from cloudtrain.contract import FailureClass, FailureReport, JobStatus


def test_hosts_do_not_wait_for_a_leader_that_failed(tmp_path: Path) -> None:
    start = time.monotonic()
    full = FailureReport(FailureClass.DISK_FULL, "No space left on device", host="algo-1", time=1.0)
    record, _ = run_programs(tmp_path, {"algo-1": "exit 1", "algo-2": "exec sleep 600"}, {"algo-1": full})
    assert time.monotonic() - start < 60
    assert record.status == JobStatus.FAILED
    assert record.failure
    assert (record.failure.failure_class, record.failure.host) == (FailureClass.DISK_FULL, "algo-1")
