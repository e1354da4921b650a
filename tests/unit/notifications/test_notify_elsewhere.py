"""Sends the notification of a job's end from this machine, for a platform that keeps no account of what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from notification_servers import Receiver

from cloudtrain import Estimator, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.notifications.rules import Rule
from cloudtrain.testing import FakePlatform
from cloudtrain.watch.notifications import rules_of_job, send_notifications


def test_the_end_of_a_job_elsewhere_is_sent_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    job = Estimator(str(tmp_path / "train.py"), platform=FakePlatform(JobStatus.RUNNING)).fit(
        wait=False, job_name="far"
    )
    with Receiver().up() as receiver:
        rules = [Rule(webhook=receiver.url)]
        assert send_notifications(job, rules_of_job(job, rules)) == []  # nothing has happened yet
        job.stop()
        [result] = send_notifications(job, rules)
        assert (result.event, result.kind, result.error) == ("stopped", "webhook", "")
        assert send_notifications(job, rules) == [] and len(receiver.posts) == 1
    with pytest.raises(PlatformError, match="has no field notify"):
        rules_of_job(job, ())
