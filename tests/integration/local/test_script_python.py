"""``platform_options.python``: the script runs in another interpreter, without cloudtrain installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from local_jobs import Run, make_wheel, write

from cloudtrain import FailureClass, InvalidJob, JobStatus


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A virtual environment without any package, not even pip."""
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.fixture
def python_with_torch(bare_python: str) -> str:
    """It has the packages of this environment, except cloudtrain."""
    here = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    there = Path(bare_python).parents[1] / here.relative_to(sys.prefix)
    for item in here.iterdir():
        if "cloudtrain" not in item.name.lower() and not item.name.endswith(".pth"):
            (there / item.name).symlink_to(item)
    return bare_python


@pytest.fixture(scope="session")
def python39(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment of the oldest Python that runs scripts, without pip."""
    found = [shutil.which("python3.9"), *Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9")]
    folder = tmp_path_factory.mktemp("python39")
    for base in filter(None, found):
        made = subprocess.run([base, "-m", "venv", "--without-pip", folder], capture_output=True, check=False)
        if made.returncode == 0:
            return str(folder / "bin" / "python")
    pytest.skip("there is no Python 3.9 on this machine")


@pytest.fixture
def python39_with_pip(python39: str, tmp_path: Path) -> str:
    subprocess.run([python39, "-m", "venv", str(tmp_path / "with-pip")], check=True)
    return str(tmp_path / "with-pip" / "bin" / "python")


def has_cloudtrain(python: str) -> bool:
    return subprocess.run([python, "-c", "import cloudtrain"], cwd="/", capture_output=True).returncode == 0


def test_a_bare_interpreter_runs_one_rank(run: Run, bare_python: str) -> None:
    assert not has_cloudtrain(bare_python)
    job = run(
        "import sys; from cloudtrain import environment; print(environment.in_job(), sys.prefix)",
        platform_options={"python": bare_python},
    )
    assert job.logs() == f"[rank 0] True {Path(bare_python).parents[1]}\n", job.failure


def test_python_3_9_runs_the_ranks_of_two_hosts(run: Run, python39: str) -> None:
    assert not has_cloudtrain(python39)
    job = run(
        """
        import sys
        from cloudtrain import environment
        from cloudtrain.checkpoint import Checkpointer
        print(environment.rank(), environment.world_size(), sys.version_info[:2], Checkpointer.__name__)
        """,
        platform_options={"python": python39},
        instance_count=2,
        distribution={"processes": {"processes_per_host": 2}},
    )
    ranks = sorted(job.logs().splitlines())
    assert ranks == [f"[rank {rank}] {rank} 4 (3, 9) Checkpointer" for rank in range(4)], job.failure


def test_collectives_and_torchrun(run: Run, python_with_torch: str) -> None:
    assert not has_cloudtrain(python_with_torch)
    job = run(
        """
        import os, sys, torch
        import horovod.torch as hvd
        hvd.init()
        total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum)
        print(hvd.rank(), hvd.size(), total.item(), os.environ["TORCHELASTIC_RESTART_COUNT"], sys.prefix)
        """,
        platform_options={"python": python_with_torch},
        distribution={"torch_distributed": {"enabled": True, "processes_per_host": 2}},
    )
    prefix = Path(python_with_torch).parents[1]
    ranks = sorted(line for line in job.logs().splitlines() if line.startswith("[rank"))
    assert ranks == [f"[rank {rank}] {rank} 2 3.0 0 {prefix}" for rank in range(2)], job.failure


def test_mpirun(run: Run, bare_python: str) -> None:
    if shutil.which("mpirun") is None:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no mpirun on the PATH"
        pytest.skip("there is no mpirun on the PATH")
    job = run(
        "import sys; from cloudtrain import environment; print(environment.rank(), sys.prefix)",
        platform_options={"python": bare_python},
        distribution={"mpi": {"enabled": True, "processes_per_host": 2}},
    )
    ranks = sorted(line for line in job.logs().splitlines() if line.startswith("[rank"))
    prefix = Path(bare_python).parents[1]
    assert ranks == [f"[rank {rank}] {rank} {prefix}" for rank in range(2)], job.failure


@pytest.mark.parametrize("fixture", ["bare_python", "python39", "python39_with_pip"])
def test_requirements_are_installed_for_that_interpreter(
    run: Run, tmp_path: Path, fixture: str, request: pytest.FixtureRequest
) -> None:
    python: str = request.getfixturevalue(fixture)
    wheel = make_wheel(tmp_path, "wanted_by_test")
    source = write(
        tmp_path / "src", "train.py", "import sys, wanted_by_test as w; print(w.x, sys.version_info[:2])"
    )
    write(source, "requirements.txt", f"{wheel}\n")
    version = subprocess.check_output([python, "-c", "import sys; print(sys.version_info[:2])"], text=True)
    for _ in range(2):  # the second time from the cache
        job = run(source, platform_options={"python": python})
        assert job.logs().splitlines(keepends=True)[-1] == f"[rank 0] 5 {version}", job.failure


def test_requirements_that_cannot_be_installed_name_the_reason(
    run: Run, tmp_path: Path, python39: str
) -> None:
    source = write(tmp_path / "src", "train.py", "print('never')")
    write(source, "requirements.txt", "./nosuch-folder\n")
    job = run(source, platform_options={"python": python39})
    assert (job.status, job.failure and job.failure.failure_class) == (
        JobStatus.FAILED,
        FailureClass.REQUIREMENTS,
    )
    assert job.failure and "nosuch-folder" in job.failure.message


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("#!/bin/sh\nexit 3", "does not run Python code: exit code 3"),
        ('#!/bin/sh\nexec bash "$@"', "does not run Python code: .*line"),
        ("#!/bin/sh\necho hello", "is not a Python interpreter"),
        ("#!/bin/sh\necho '[[3, 8, 1], [], null]'", r"is Python 3\.8\.1"),
    ],
)
def test_an_interpreter_that_cannot_run_the_script_is_refused(
    run: Run, tmp_path: Path, program: str, words: str
) -> None:
    path = tmp_path / "python"
    path.write_text(program)
    path.chmod(0o755)
    with pytest.raises(InvalidJob, match=rf"platform_options\.python: .*{words}") as caught:
        run("print('never')", platform_options={"python": str(path)})
    assert "Python 3.9 or newer" in caught.value.hint


def test_a_path_that_does_not_exist_is_refused(run: Run) -> None:
    with pytest.raises(InvalidJob, match="there is no program '/nosuch/python'") as caught:
        run("print('never')", platform_options={"python": "/nosuch/python"})
    assert "Python 3.9 or newer" in caught.value.hint


def test_an_interpreter_that_vanishes_after_submission_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text(
        f'#!/bin/sh\nrm "$0"\nexec {sys.executable} "$@"\n'
    )  # it answers the check of the submission
    path.chmod(0o755)
    failure = run("print('never')", platform_options={"python": str(path)}).failure
    assert failure and failure.message == f"platform_options.python: there is no program '{path}'"
    assert "restore it" in failure.hint
