"""Scripts that use ``/opt/ml`` on this machine, as they do on SageMaker."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from local_jobs import Run, wait_for_end, write
from ordinary_user import USER, as_user, folder_of_user, needs_root

from cloudtrain import FailureClass, Job
from cloudtrain.storage import open_store

MEETS_ANOTHER_JOB = """
    import os, sys, time
    from pathlib import Path

    name, marks = os.environ["SAGEMAKER_JOB_NAME"], Path(sys.argv[-1])
    Path("/opt/ml/checkpoints", name).touch()
    Path("/opt/ml/model/weights").write_text(name)
    (marks / name).touch()
    while len(os.listdir(marks)) < 2:
        time.sleep(0.02)
    print(sorted(os.listdir("/opt/ml/checkpoints")), Path("/opt/ml/model/weights").read_text())
    print(os.path.samefile("/opt/ml/model", os.environ["SM_MODEL_DIR"]), sorted(os.listdir("/opt/ml/input/config")))
"""

AS_A_USER = """
    import os
    from pathlib import Path

    rank = os.environ["RANK"]
    Path(f"/opt/ml/model/{rank}").write_text(Path("/opt/ml/input/data/train/x").read_text())
    print("user", os.getuid(), os.getgid(), "of", os.environ["WORLD_SIZE"], flush=True)
"""

READS = """
    import sys
    print("begins", flush=True)
    open("/opt/ml/input/data/train/not-there")
"""


def unpacked(model_data: str | None) -> dict[str, str]:
    """The files of a model, by name."""
    assert model_data
    folder, _, name = model_data.rpartition("/")
    path = Path(os.environ["CLOUDTRAIN_HOME"]) / f"got-{os.urandom(4).hex()}.tar.gz"
    open_store(folder).download(name, path)
    with tarfile.open(path) as tar:
        return {
            os.path.basename(member.name): file.read().decode()
            for member in tar
            if (file := tar.extractfile(member))
        }


def opt() -> list[str]:
    """Everything in the machine's own /opt and /opt/ml."""
    patterns = ("*", "ml/*", "ml/model/*", "ml/checkpoints/*")
    return sorted(str(path) for pattern in patterns for path in Path("/opt").glob(pattern))


@needs_root
def test_two_jobs_do_not_see_each_other_s_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    before = opt()
    jobs: list[Job] = [
        run(MEETS_ANOTHER_JOB, wait=False, job_name=name, hyperparameters={"marks": str(tmp_path / "marks")})
        for name in ("first", "second")
    ]
    for job in jobs:
        wait_for_end(job)
        assert job.failure is None
        seen, same = job.logs().splitlines()
        assert seen == f"[rank 0] ['{job.name}'] {job.name}"
        assert same.startswith("[rank 0] True ['hyperparameters.json'")
        assert unpacked(job.model_data) == {"weights": job.name}
    assert opt() == before


@needs_root
def test_the_job_of_an_ordinary_user_under_mpirun() -> None:
    """In a user namespace, mpirun starts its daemons and ranks, and the user stays the same."""
    before = opt()
    with folder_of_user() as folder:
        write(folder, "train.py", AS_A_USER)
        write(folder, "data/x", "0.5")
        write(
            folder,
            "job.yaml",
            f"entry_point: train.py\ninputs: {{train: {folder}/data}}\ninstance_count: 2\n",
        )
        environ = {name: value for name, value in os.environ.items() if "pytest" not in value}
        own = {name: str(folder) for name in ("CLOUDTRAIN_HOME", "HOME", "TMPDIR", "XDG_CONFIG_HOME")}
        options = ["--name", "as-user", "--mpirun", "--processes-per-host", "2"]
        done = subprocess.run(
            [*as_user(), sys.executable, "-m", "cloudtrain", "submit", "job.yaml", *options],
            cwd=folder,
            env={**environ, **own, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(f"user {USER} {USER} of 4") == 4
        hosts = folder / "jobs/local/as-user/hosts"
        saved = {path.name: path.read_text() for path in hosts.glob("*/model/*")}
        assert saved == dict.fromkeys("0123", "0.5")
    assert opt() == before


def test_without_its_own_opt_ml_a_job_warns_once_and_its_failure_has_a_hint(run: Run) -> None:
    job = run(READS, instance_count=2, platform_options={"mount_opt_ml": False})
    logs = job.logs()
    warning = "[cloudtrain] train.py:4 uses /opt/ml/input/data/train/not-there, but this job has no /opt/ml"
    assert (logs.count(warning), logs.count("Use the variable SM_CHANNEL_TRAIN instead")) == (1, 1)
    assert logs.index(warning) < logs.index("begins")
    assert job.failure
    assert job.failure.failure_class == FailureClass.MISSING_DATA
    assert "SM_CHANNEL_TRAIN" in job.failure.hint and "--platform container" in job.failure.hint


def test_a_script_that_does_not_use_opt_ml_gets_no_warning(run: Run) -> None:
    job = run("import os; print(os.environ['SM_MODEL_DIR'])", platform_options={"mount_opt_ml": False})
    assert "/opt/ml" not in job.logs()


@pytest.mark.parametrize("value", ["yes", 1])
def test_the_option_is_a_boolean(run: Run, value: object) -> None:
    with pytest.raises(Exception, match="mount_opt_ml"):
        run("pass", platform_options={"mount_opt_ml": value})
