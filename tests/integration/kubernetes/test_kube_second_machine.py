"""Jobs are found on a machine that submitted none: by list, and by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_operator_controllers import operators
from test_kube_submit import prepared

from cloudtrain.contract import JobStatus
from cloudtrain.job import Job
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.kubernetes.places import Places


def test_jobs_of_all_kinds_are_found_without_tickets(
    kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("job", "jobset", "mpijob")
    with operators(kubernetes.cluster, "JobSet", "MPIJob"):
        for name in names:
            options = {"rendering": name, "gpus": 64 if name == "mpijob" else 0}
            prepared(tmp_path, job_name=f"a-{name}", platform_options=options).submit()
        monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "another machine"))
        platform = KubernetesPlatform()
        assert not Places().tickets.read("a-job")
        assert {job.name for job in platform.list()} == {f"a-{name}" for name in names}
        for name in names:
            found = Job(f"a-{name}", platform)
            if name != "mpijob":
                kubernetes.wait_until(lambda found=found: found.status == JobStatus.COMPLETED, "its end")
                assert "hello" in found.logs()
        waits = Job("a-mpijob", platform)
        assert waits.status == JobStatus.PENDING
        waits.stop()
        kubernetes.wait_until(lambda: waits.status == JobStatus.STOPPED, "its stop")
