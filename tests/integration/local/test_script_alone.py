"""A script that is submitted without a source_dir runs as in its folder; where it cannot, the report says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_jobs import Run, write

from cloudtrain import FailureClass, JobStatus


def test_a_script_alone_finds_its_modules(run: Run, tmp_path: Path) -> None:
    for name in ("models/__init__.py", "models/gan.py", "evaluate.py"):
        write(tmp_path, name, "from helpers import NAME\n")
    write(tmp_path, "helpers.py", "NAME = 'found'\n")
    write(
        tmp_path,
        "train.py",
        """
        import importlib, os
        import models
        print(importlib.import_module("models.gan").NAME, os.path.exists("evaluate.py"))
        """,
    )
    job = run(tmp_path, name=str(tmp_path / "train.py"), source_dir=None)
    assert (job.status, job.logs()) == (JobStatus.COMPLETED, "[rank 0] found False\n")


ALONE = {
    "computed-name": ("__import__('oth' + 'er')", "If it is a module of yours, pack its folder"),
    "relative-import": ("from .helpers import x", "Write from helpers import x instead of from .helpers import x"),
    "configuration": ("open('conf/a.yaml')", "conf/a.yaml is relative to the working folder"),
    "own-path": ("open(__file__[:-8] + 'a.yaml')", "a.yaml is not in the job's source"),
    "channel": ("import os; os.environ['SM_CHANNEL_TRAINING']", "Its channels: test, train."),
    "arguments": ("import argparse; argparse.ArgumentParser().parse_args()", "does not declare --epohcs 5."),
}  # fmt: skip


@pytest.mark.parametrize("case", ALONE)
def test_the_report_has_the_reason(run: Run, tmp_path: Path, case: str) -> None:
    code, expected = ALONE[case]
    for name in ("other.py", "helpers.py", "conf/a.yaml", "a.yaml", "data/x.csv"):
        write(tmp_path, name, "")
    write(tmp_path, "train.py", code)
    data = str(tmp_path / "data")
    job = run(
        tmp_path,
        {"train": data, "test": data},
        name=str(tmp_path / "train.py"),
        source_dir=None,
        hyperparameters={"epohcs": 5},
    )
    assert job.failure
    assert expected in job.failure.hint
    assert "Add " not in job.failure.hint


def test_a_shell_script_that_starts_another_script(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "train.py", "")
    write(tmp_path, "run.sh", "#!/bin/sh\nexec python train.py\n")
    job = run(tmp_path, name=str(tmp_path / "run.sh"), source_dir=None)
    assert job.failure
    assert job.failure.failure_class == FailureClass.MISSING_DATA
    assert job.failure.hint.startswith("train.py is not in the job's source. Pack the folder of the scripts")


def test_the_advice_for_a_module_in_another_folder_works(run: Run, tmp_path: Path) -> None:
    source = write(
        write(tmp_path, "lib/tools.py", "NAME = 'tools'\n"), "train.py", "import tools; print(tools.NAME)"
    )
    job = run(source)
    assert job.failure
    assert job.failure.hint.endswith("or set PYTHONPATH=lib in the job's environment.")
    job = run(source, environment={"PYTHONPATH": "lib"})
    assert job.logs() == "[rank 0] tools\n"
