"""The ``horovod`` that the ranks of a job import: the real one or cloudtrain's."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_jobs import Run, write

from cloudtrain import Job, JobStatus

PRINTS_WHERE = """
    import os
    import horovod
    from cloudtrain import environment
    print("from", os.path.dirname(horovod.__file__), "rank", environment.rank(), flush=True)
"""

DISTRIBUTIONS = {
    "horovod": {"horovod": {"processes_per_host": 2}},
    "mpi": {"mpi": {"processes_per_host": 2}},
    "none": {},
}
"""The other launchers set the same variable: see `test_rank_environment`."""


@pytest.mark.parametrize("case", DISTRIBUTIONS)
def test_cloudtrains_horovod_is_imported_without_another(run: Run, case: str) -> None:
    job = run(PRINTS_WHERE, distribution=DISTRIBUTIONS[case])
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert job.logs().count("cloudtrain/alias/horovod rank") == (1 if case == "none" else 2)


PRINTS_VARIABLES = """
    import os
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    print(*(os.environ.get(f"HOROVOD_{name}") for name in names), flush=True)
"""
TWO_HOSTS_OF_TWO = ["0 4 0 2 0 2", "1 4 1 2 0 2", "2 4 0 2 1 2", "3 4 1 2 1 2"]
"""The output of the four ranks with the distribution horovod."""


def printed_variables(job: Job) -> list[str]:
    return sorted(line.partition("] ")[2] for line in job.logs().splitlines() if line.startswith("[rank"))


@pytest.mark.parametrize("built_for", ["cloudtrain", "mpi"])
def test_ranks_have_the_variables_that_horovodrun_sets(run: Run, tmp_path: Path, built_for: str) -> None:
    environment = {}
    if built_for == "mpi":
        write(tmp_path / "installed", "horovod/__init__.py", "")
        write(tmp_path / "installed", "horovod/torch/mpi_lib.so", "built without Gloo")
        environment["PYTHONPATH"] = str(tmp_path / "installed")
    distribution = {"horovod": {"processes_per_host": 2}}
    job = run(PRINTS_VARIABLES, distribution=distribution, instance_count=2, environment=environment)
    assert printed_variables(job) == TWO_HOSTS_OF_TWO, job.logs()


def test_other_distributions_do_not_set_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the job is submitted by a rank of another job."""
    for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"):
        monkeypatch.setenv(f"HOROVOD_{name}", "7")
    job = run(PRINTS_VARIABLES, distribution={"processes": {"processes_per_host": 2}})
    assert printed_variables(job) == ["None None None None None None"] * 2


def test_a_module_in_the_source_takes_precedence(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "source", "train.py", PRINTS_WHERE)
    write(source, "horovod/__init__.py", "")
    job = run(source)
    assert "code/horovod rank 0" in job.logs()


def test_an_installed_one_is_used(run: Run, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    write(installed, "horovod/__init__.py", "")
    job = run(PRINTS_WHERE, environment={"PYTHONPATH": str(installed)})
    assert f"from {installed}/horovod rank 0" in job.logs()


def test_the_real_one_is_required_and_not_installed(run: Run) -> None:
    job = run("print('never')", distribution={"horovod": {"implementation": "horovod"}})
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert "Horovod is not installed" in job.failure.message
    assert "requirements.txt" in job.failure.hint
