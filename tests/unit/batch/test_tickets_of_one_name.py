"""Two clients submit one name: the ticket of the job that runs stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, Job
from cloudtrain.errors import JobExists, PlatformError
from cloudtrain.platforms.batch.cluster_platform import Tickets

QSUB = """#!/bin/sh
[ -e REFUSED ] && echo "qsub: over the limit of the queue" >&2 && exit 1
echo 1.server
"""
"""The one command of the scheduler that a submission runs."""


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "qsub").write_text(QSUB.replace("REFUSED", f"{tmp_path}/refused"))
    (commands / "qsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    (tmp_path / "train.py").write_text("print('x')")

    def start() -> Job:
        return Estimator(
            str(tmp_path / "train.py"), platform="pbs", platform_options={"folder": str(tmp_path / "shared")}
        ).fit(job_name="job", wait=False)

    return start


def test_the_second_submission_keeps_the_ticket_of_the_first(submit: Any) -> None:
    submit()
    ticket = Tickets("pbs").read("job")
    assert ticket
    Tickets("pbs").remove("job")  # as the second client found it: the first had not yet written it
    with pytest.raises(JobExists):
        submit()
    assert Tickets("pbs").read("job") == ticket


def test_a_refused_job_leaves_no_ticket(submit: Any, tmp_path: Path) -> None:
    (tmp_path / "refused").touch()
    with pytest.raises(PlatformError, match="over the limit"):
        submit()
    assert Tickets("pbs").read("job") is None
