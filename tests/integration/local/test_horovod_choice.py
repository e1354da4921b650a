"""Whose ``horovod`` the ranks of a job import."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_jobs import Run, write

from cloudtrain import JobStatus

PRINTS_WHERE = """
    import os
    import horovod
    print("from", os.path.dirname(horovod.__file__), "rank", os.environ["RANK"], flush=True)
"""

DISTRIBUTIONS = {
    "horovod-auto": {"horovod": {"processes_per_host": 2}},
    "horovod-cloudtrain": {"horovod": {"processes_per_host": 2, "implementation": "cloudtrain"}},
    "mpi": {"mpi": {"processes_per_host": 2}},
    "torch": {"torch_distributed": {"processes_per_host": 2}},
    "processes": {"processes": {"processes_per_host": 2}},
    "none": {},
}


@pytest.mark.parametrize("case", DISTRIBUTIONS)
def test_cloudtrains_where_there_is_no_other(run: Run, case: str) -> None:
    job = run(PRINTS_WHERE, distribution=DISTRIBUTIONS[case])
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert job.logs().count("cloudtrain/alias/horovod rank") == (1 if case == "none" else 2)


def test_a_module_of_the_users_own_comes_first(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "source", "train.py", PRINTS_WHERE)
    write(source, "horovod/__init__.py", "")
    job = run(source)
    assert "code/horovod rank 0" in job.logs()


def test_one_that_is_installed_is_left_alone(run: Run, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    write(installed, "horovod/__init__.py", "")
    job = run(PRINTS_WHERE, environment={"PYTHONPATH": str(installed)})
    assert f"from {installed}/horovod rank 0" in job.logs()


def test_the_real_one_is_asked_for_and_not_there(run: Run) -> None:
    job = run("print('never')", distribution={"horovod": {"implementation": "horovod"}})
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert "Horovod is not installed" in job.failure.message
    assert "requirements.txt" in job.failure.hint
